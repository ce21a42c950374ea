"""A lexical shortlist: each sentence is translated with its own likely words alone.

Jean et al. 2015, "On Using Very Large Target Vocabulary", section 3.3: the candidates of a sentence
are the K most frequent target pieces and the K' likeliest translations of each of its source
pieces. The output layer is computed for the candidates of a batch only, and probabilities are those
over a sentence's own candidates, so that what is beside a sentence never matters to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.models.seq2seq import Decoded, DecoderState, Memory, Projection, Seq2Seq, Step
from translate.search.constraints import Constraint, Constraints, Joints, Tokens
from translate.search.hypothesis import Hypothesis, Search
from translate.vocabulary import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Shortlist:
    """The target pieces that may translate each source piece."""

    frequent: Int[Tensor, "K"]  # in any translation
    likeliest: Int[Tensor, "V K2"]  # of each source piece; <pad> where there are fewer

    def candidates(
        self,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        constraints: Constraints,
        size: int,
    ) -> Bool[Tensor, "B V"]:
        """Return the pieces that may occur in each sentence's translation, of `size` target pieces.

        What is constrained may, and the four special pieces, which searches count on.
        """
        allowed = torch.zeros(len(source), size, dtype=torch.bool, device=source.device)
        allowed[:, [PAD, UNK, BOS, EOS]] = True
        allowed[:, self.frequent.to(source.device)] = True
        likeliest = self.likeliest.to(source.device)[source]
        likeliest = likeliest.where(source_mask[:, :, None], PAD).flatten(1)
        allowed.scatter_(1, likeliest, torch.ones_like(likeliest, dtype=torch.bool))
        for row, constraint in zip(allowed, constraints or (), strict=False):
            row[[*itertools.chain(constraint.prefix, *constraint.phrases)]] = True
        return allowed

    def limiting(self, search: Search) -> Search:
        """Return the search among these pieces alone."""
        return ShortlistSearch(search, self)


class ShortlistSearch:
    """A search within the candidates of each sentence; scores are normalised over these.

    The search itself sees a smaller vocabulary: the candidates of its batch, in their order.
    """

    def __init__(self, search: Search, shortlist: Shortlist) -> None:
        self.search, self.shortlist, self.rules = search, shortlist, search.rules

    @torch.inference_mode()
    def __call__(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        constraints: Constraints = None,
        need_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        allowed = self.shortlist.candidates(
            source, source_mask, constraints, model.target_vocab_size
        )
        wanted = allowed.any(0)
        # what is banned is nobody's candidate thereby, but has to have a number
        never = [tokens for one in constraints or () for tokens in (*one.banned, *one.glued)]
        wanted[list(itertools.chain.from_iterable(never))] = True
        pieces = wanted.nonzero()[:, 0]
        ids = pieces.tolist()
        numbers = {piece: number for number, piece in enumerate(ids)}
        candidates = allowed[:, pieces].cpu().numpy()
        small = constraints and [
            replace(_renumbered(one, numbers), joints=_among(ids, there, one.joints))
            for one, there in zip(constraints, candidates, strict=True)
        ]
        n_best_lists = self.search(
            Shortlisted(model, pieces, ~allowed[:, pieces]), source, source_mask, constraints=small,
            need_alignment=need_alignment,
        )  # fmt: skip
        return [
            [replace(one, tokens=tuple(ids[token] for token in one.tokens)) for one in n_best]
            for n_best in n_best_lists
        ]


@dataclass(frozen=True)
class ShortlistedState:
    """The decoder's state, and what is no candidate of each sentence."""

    inner: DecoderState
    barred: Bool[Tensor, "B C"]
    sentences: Int[Tensor, "N"]  # of the rows

    def select(self, hypotheses: Int[Tensor, "M"]) -> ShortlistedState:
        inner, sentences = self.inner.select(hypotheses), self.sentences[hypotheses]
        return ShortlistedState(inner, self.barred, sentences)

    def keep(self, sentences: Int[Tensor, "C"]) -> ShortlistedState:
        beam = len(self.sentences) // len(self.barred)
        barred = self.barred[sentences]
        rows = torch.arange(len(barred), device=barred.device).repeat_interleave(beam)
        return ShortlistedState(self.inner.keep(sentences), barred, rows)


class Shortlisted(Seq2Seq):
    """A model with some of its target pieces, for one batch: piece i of it is `pieces[i]`.

    `hidden` is the logits already: a step alone knows which sentence a row belongs to.
    """

    def __init__(
        self, model: Seq2Seq, pieces: Int[Tensor, "C"], barred: Bool[Tensor, "B C"]
    ) -> None:
        super().__init__(source_vocab_size=model.source_vocab_size, target_vocab_size=len(pieces))
        self.model, self.max_length = model, model.max_length
        self.pieces, self.barred = pieces, barred
        self.logits: Projection = model.projection(pieces)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        return self.model.encode(source, source_mask)

    def decode(
        self,
        target_in: Int[Tensor, "B T"],
        memory: Memory,
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        decoded = self.model.decode(self.pieces[target_in], memory, need_alignment=need_alignment)
        barred = self.barred.repeat_interleave(target_in.shape[1], dim=0)
        rows = self.logits(decoded.hidden.flatten(0, 1), barred)
        return decoded._replace(hidden=rows.view(*target_in.shape, -1))

    def start(self, memory: Memory) -> ShortlistedState:
        rows = torch.arange(len(self.barred), device=self.barred.device)
        return ShortlistedState(self.model.start(memory), self.barred, rows)

    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: ShortlistedState,  # type: ignore[override]  # its own state
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        step = self.model.decode_step(
            self.pieces[tokens], state.inner, live=live, need_alignment=need_alignment
        )
        barred = state.barred[state.sentences if live is None else state.sentences[live]]
        after = replace(state, inner=step.state)
        return Step(self.logits(step.hidden, barred), after, step.alignment)

    def project(self, hidden: Float[Tensor, "*rows C"]) -> Float[Tensor, "*rows C"]:
        return hidden


def _renumbered(constraint: Constraint, numbers: dict[int, int]) -> Constraint:
    def each(phrases: Sequence[Tokens]) -> tuple[Tokens, ...]:
        return tuple(tuple(numbers[piece] for piece in tokens) for tokens in phrases)

    (prefix,) = each([constraint.prefix])
    phrases, banned, glued = map(each, (constraint.phrases, constraint.banned, constraint.glued))
    return Constraint(prefix, phrases, banned, glued)


def _among(
    pieces: Sequence[int], candidates: Bool[np.ndarray, "C"], joints: Joints | None
) -> Joints | None:
    """The joints of these pieces; nothing goes on where the sentence's own leave nothing for it."""
    if joints is None:
        return None
    small = Joints(*(side[pieces] for side in joints))
    return (
        small
        if (small.onward & candidates).any()
        else small._replace(onward=np.zeros_like(candidates))
    )
