"""Several models as one: each predicts the next token, and their probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.errors import UserError
from translate.inference.bundle import Bundle
from translate.models.seq2seq import Decoded, DecoderState, Memory, Projection, Seq2Seq, Stack, Step


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memories of all encoders; `states` are those of the first."""

    memories: tuple[Memory, ...]

    def at(self, sentences: Int[Tensor, "C"]) -> EnsembleMemory:
        memories = tuple(memory.at(sentences) for memory in self.memories)
        return EnsembleMemory(memories[0].states, memories[0].mask, memories)


@dataclass(frozen=True)
class EnsembleState:
    """The states of all decoders."""

    states: tuple[DecoderState, ...]

    def select(self, hypotheses: Int[Tensor, "M"]) -> EnsembleState:
        return EnsembleState(tuple(state.select(hypotheses) for state in self.states))

    def keep(self, sentences: Int[Tensor, "C"]) -> EnsembleState:
        return EnsembleState(tuple(state.keep(sentences) for state in self.states))


class Ensemble(Seq2Seq):
    """P(y | prefix, source) = Σ_m P_m(y | prefix, source) / M, for M models of any families.

    `hidden` is the models' hidden vectors side by side. The alignment is the mean of each model's
    mean over layers and heads, (…, 1, 1, …), over the models that have attention. An ensemble
    translates and scores; each of its models is trained alone.
    """

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        first = models[0]
        if len({model.target_vocab_size for model in models}) > 1:
            raise ValueError("the models of an ensemble must share a target vocabulary")
        super().__init__(
            source_vocab_size=first.source_vocab_size, target_vocab_size=first.target_vocab_size
        )
        dtype = next(first.parameters()).dtype
        self.models: Stack[Seq2Seq] = Stack([model.in_dtype(dtype) for model in models])
        limits = [model.max_length for model in models if model.max_length is not None]
        self.max_length = min(limits, default=None)

    def encode(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]
    ) -> EnsembleMemory:
        memories = tuple(model.encode(source, source_mask) for model in self.models)
        return EnsembleMemory(memories[0].states, source_mask, memories)

    def decode(
        self,
        target_in: Int[Tensor, "B T"],
        memory: EnsembleMemory,  # type: ignore[override]  # its own memory
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        decoded = [
            model.decode(target_in, member, need_alignment=need_alignment)
            for model, member in zip(self.models, memory.memories, strict=True)
        ]
        hidden = torch.cat([one.hidden for one in decoded], dim=-1)
        return Decoded(hidden, _mean([one.alignment for one in decoded]))

    def start(self, memory: EnsembleMemory) -> EnsembleState:  # type: ignore[override]
        pairs = zip(self.models, memory.memories, strict=True)
        return EnsembleState(tuple(model.start(member) for model, member in pairs))

    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: EnsembleState,  # type: ignore[override]
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        steps = [
            model.decode_step(tokens, member, live=live, need_alignment=need_alignment)
            for model, member in zip(self.models, state.states, strict=True)
        ]
        hidden = torch.cat([step.hidden for step in steps], dim=-1)
        after = EnsembleState(tuple(step.state for step in steps))
        return Step(hidden, after, _mean([step.alignment for step in steps]))

    def project(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Logarithms of the mean probabilities, which are logits that are normalised already."""
        parts = zip(self.models, self._parts(hidden), strict=True)
        return _averaged([model.project(part) for model, part in parts])

    def projection(self, pieces: Int[Tensor, "C"]) -> Projection:
        each = [model.projection(pieces) for model in self.models]

        def logits(
            hidden: Float[Tensor, "N D"], barred: Bool[Tensor, "N C"]
        ) -> Float[Tensor, "N C"]:
            parts = zip(each, self._parts(hidden), strict=True)
            return _averaged([project(part, barred) for project, part in parts])

        return logits

    def _parts(self, hidden: Float[Tensor, "*rows D"]) -> tuple[Float[Tensor, "..."], ...]:
        """Each model's own hidden vectors."""
        widths = [model.output.in_features for model in self.models]
        parts: tuple[Tensor, ...] = torch.split(hidden, widths, dim=-1)
        return parts


def _averaged(logits: Sequence[Float[Tensor, "*rows V"]]) -> Float[Tensor, "*rows V"]:
    # float32 at least, as in search: a mean of bf16 probabilities keeps two digits
    wide = torch.promote_types(logits[0].dtype, torch.float32)
    log_probs = torch.stack([one.log_softmax(-1, dtype=wide) for one in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))


def _mean(alignments: Sequence[Float[Tensor, "..."] | None]) -> Float[Tensor, "..."] | None:
    """(B, L, H, T, S) or (N, L, H, S) of unlike L and H → L = H = 1."""
    known = [one.mean((1, 2), keepdim=True) for one in alignments if one is not None]
    return torch.stack(known).mean(0) if known else None


def together(bundles: Sequence[tuple[str, Bundle]]) -> Bundle:
    """Return the bundle of an ensemble: that of the first run in everything but the model.

    Args:
        bundles: each run with its bundle.

    Raises:
        UserError: runs with different tokenizers of a side: their pieces mean different words, and
            a sentence is cut into pieces once, for all of them. Or runs of other languages without
            a tag that says which is meant: their joint tokenizer may be the same.
    """
    (first, one), *others = bundles
    for run, other in others:
        if one.config.tag is None and one.config.languages != other.config.languages:
            raise UserError(
                f"{run} translates {' to '.join(other.config.languages)}, but {first} translates "
                f"{' to '.join(one.config.languages)}: the runs of an ensemble must translate "
                "between the same languages"
            )
        for side in ("source", "target"):
            hashes = [each.config.tokenizers[side] for each in (one, other)]
            if hashes[0] != hashes[1]:
                raise UserError(
                    f"{first} and {run} have different {side} tokenizers (SHA-256 {hashes[0]} and "
                    f"{hashes[1]}), but the runs of an ensemble must share their tokenizers: "
                    "train them with the same data and tokenizer"
                )
    return replace(one, model=Ensemble([each.model for _, each in bundles]).eval())
