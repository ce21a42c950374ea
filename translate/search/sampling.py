"""Greedy search and sampling: one token after another, the likeliest or one that is drawn."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.attention.cache import Number, number_on
from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import (
    Constraints,
    Position,
    active_rules,
    apply,
    at_limit,
    length_limits,
    refuse_phrases,
)
from translate.search.cuda_graph import Progress, Shown, replayed
from translate.search.hypothesis import (
    MOST,
    ROOT,
    Counts,
    Hypothesis,
    Nodes,
    Rows,
    SearchConfig,
    Tree,
    worth_leaving,
)
from translate.search.scoring import best_next, next_log_probs
from translate.vocabulary import BOS, EOS

# log p / 1e-42 is beyond float32, and 1e39 itself
Temperature = Annotated[float, Field(ge=1e-3, le=1e6)]


class GreedyConfig(SearchConfig):
    """The node `search` of greedy search."""

    kind: Literal["greedy"] = Field(description="the likeliest next piece, again and again")


class SampleConfig(SearchConfig):
    """The node `search` of sampling."""

    kind: Literal["sample"] = Field(
        description="pieces drawn as the model finds them likely; mbr=chrf chooses well among many "
        "samples"
    )
    n_best: int = Field(gt=0, le=MOST, description="samples per sentence")
    temperature: Temperature = Field(
        description="below 1 likelier pieces are drawn more often still"
    )
    top_k: int = Field(ge=0, description="draw from the k likeliest pieces; 0: from all")
    top_p: float = Field(
        gt=0,
        le=1,
        description="draw from the fewest likeliest pieces that together have probability p "
        "(nucleus)",
    )
    min_p: float = Field(
        ge=0,
        le=1,
        description="draw from the pieces at least this share as likely as the likeliest",
    )
    typical_p: float = Field(
        gt=0,
        le=1,
        description="draw from the fewest pieces of nearly expected surprise that together have "
        "this probability",
    )
    seed: int = Field(
        ge=0,
        description="seed of the draws, with each sentence's own words: what is beside it matters "
        "only by rounding",
    )


class Moment(NamedTuple):
    """The next tokens that each walker chooses from."""

    log_probs: Float[Tensor, "N V"]  # the model's own
    ranks: Float[Tensor, "N V"]  # the same under the rules
    ending: Bool[Tensor, "N"] | None  # at the length limit: only </s> is left; None: nobody is
    walkers: Int[Tensor, "N"]  # index in the whole batch
    length: Number  # tokens so far


class GreedySearch:
    """One hypothesis a sentence; equal to beam search with a beam of one.

    A translation has at most max_length_ratio · source length + max_length_offset tokens, and no
    more than the model can read.
    """

    Config: ClassVar = GreedyConfig

    def __init__(self, config: GreedyConfig) -> None:
        self.config, self.rules = config, config.rules

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
        limits = _limits(self.config, model, source_mask, constraints)
        return walk(
            model, source, source_mask, _likeliest, config=self.config, copies=1, limits=limits,
            constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip


class SampleSearch:
    """`n_best` independent samples a sentence, the likeliest first; one may come twice.

    A token is drawn from softmax(log p / temperature), of which `top_k`, `top_p`, `min_p` and
    `typical_p` keep a part each, in this order. What is drawn depends on `seed` and the sentence
    alone, not on the sentences beside it, up to rounding. A higher `n_best` adds samples to the
    same ones, and a higher limit of lengths changes only those that met it.
    """

    Config: ClassVar = SampleConfig

    def __init__(self, config: SampleConfig) -> None:
        self.config, self.rules = config, config.rules

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
        limits = _limits(self.config, model, source_mask, constraints)
        rows = zip(source.tolist(), source_mask.tolist(), strict=True)
        sentences = [list(itertools.compress(*row)) for row in rows]
        chances = self._chances(sentences, limits).to(source.device)

        def draw(now: Moment) -> Int[Tensor, "N"]:
            # of one dimension: an index of none would be waited for
            here = number_on(chances.device, now.length)[None]
            drawn = drawn_from(self.filtered(now.ranks), chances[now.walkers, here])
            stuck = now.ranks.isneginf().all(1)  # the rules have left nothing
            return torch.where(stuck if now.ending is None else now.ending | stuck, EOS, drawn)

        return walk(
            model, source, source_mask, draw, config=self.config, copies=self.config.n_best,
            limits=limits, constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip

    def filtered(self, ranks: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Return the logarithms of the probabilities that are drawn from."""
        config = self.config
        log_probs = (ranks / config.temperature).log_softmax(1)
        if config.top_k:
            log_probs = top_k(log_probs, config.top_k).log_softmax(1)
        if config.top_p < 1:
            log_probs = top_p(log_probs, config.top_p).log_softmax(1)
        if config.min_p > 0:
            log_probs = min_p(log_probs, config.min_p).log_softmax(1)
        if config.typical_p < 1:
            log_probs = typical(log_probs, config.typical_p).log_softmax(1)
        return log_probs

    def _chances(self, sentences: Sequence[list[int]], limits: list[int]) -> Float[Tensor, "W T"]:
        """Return a number in [0, 1) for each token of each walker."""
        table = torch.zeros(len(sentences), self.config.n_best, max(limits) + 1)
        for of_sentence, ids, limit in zip(table, sentences, limits, strict=True):
            for walker, row in enumerate(of_sentence):  # a stream each: a longer one goes on alike
                digest = hashlib.sha256(f"{self.config.seed} {walker} {ids}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
                row[: limit + 1] = torch.rand(limit + 1, generator=generator)
        return table.flatten(0, 1)


def _limits(
    config: GreedyConfig | SampleConfig,
    model: Seq2Seq,
    source_mask: Bool[Tensor, "B S"],
    constraints: Constraints,
) -> list[int]:
    """Return the most tokens of each translation; a UserError where phrases are asked for."""
    refuse_phrases(constraints, config.kind)
    return length_limits(
        source_mask.sum(1).tolist(), config.max_length_ratio, config.max_length_offset, constraints,
        max_length=model.max_length,
    )  # fmt: skip


def _likeliest(now: Moment) -> Int[Tensor, "N"]:
    return best_next(now.log_probs, now.ranks, 1, ending=now.ending).tokens[:, 0]


def drawn_from(log_probs: Float[Tensor, "N V"], chances: Float[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Return the token in whose part of the line from 0 to 1 each chance falls."""
    ends = log_probs.exp().cumsum(1)
    total = ends[:, -1:]
    below = total.nextafter(torch.zeros_like(total))  # a product may be rounded up to the total
    points = torch.minimum(chances[:, None].to(ends.dtype) * total, below)
    drawn = torch.searchsorted(ends, points, right=True)[:, 0]
    return drawn.clamp(max=ends.shape[1] - 1)  # beyond the end for NaN alone


# Filters keep the logarithms of a part of a distribution as they are and set the others to -inf.


def top_k(log_probs: Float[Tensor, "N V"], count: int) -> Float[Tensor, "N V"]:
    """Keep the `count` likeliest tokens (Fan et al. 2018)."""
    best = log_probs.topk(min(count, log_probs.shape[1]))
    return torch.full_like(log_probs, -math.inf).scatter(1, best.indices, best.values)


def top_p(log_probs: Float[Tensor, "N V"], mass: float) -> Float[Tensor, "N V"]:
    """Keep the nucleus: the fewest likeliest tokens that hold `mass` (Holtzman et al. 2020)."""
    return _first_to_hold(mass, log_probs, order=-log_probs)


def min_p(log_probs: Float[Tensor, "N V"], share: float) -> Float[Tensor, "N V"]:
    """Keep tokens at least `share` times as likely as the likeliest (Nguyen et al. 2025)."""
    least = log_probs.amax(1, keepdim=True) + math.log(share)
    return log_probs.masked_fill(log_probs < least, -math.inf)


def typical(log_probs: Float[Tensor, "N V"], mass: float) -> Float[Tensor, "N V"]:
    """Keep the fewest tokens that hold `mass`, first those of the most nearly expected surprise:

    |-log p(y) - H|, where H is the entropy (Meister et al. 2023, eq. 10).
    """
    entropy = torch.special.entr(log_probs.exp()).sum(1, keepdim=True)
    return _first_to_hold(mass, log_probs, order=(-log_probs - entropy).abs())


def _first_to_hold(
    mass: float, log_probs: Float[Tensor, "N V"], *, order: Float[Tensor, "N V"]
) -> Float[Tensor, "N V"]:
    """Keep the fewest tokens, taken by rising `order`, whose probabilities add up to `mass`."""
    index = order.argsort(dim=1, stable=True)
    probs = log_probs.gather(1, index).exp()
    needed = F.pad(probs.cumsum(1)[:, :-1], (1, 0)) < mass
    needed[:, 0] = True  # a mass may be so small that as a float32 it is 0
    kept = torch.zeros_like(needed).scatter(1, index, needed)
    return log_probs.masked_fill(~kept, -math.inf)


@dataclass(frozen=True)
class Walkers(Rows):
    """The hypotheses still in the batch, and where each stands."""

    numbers: Int[Tensor, "N"]  # index in the whole batch
    sentences: Int[Tensor, "N"]  # of each
    rows: Int[Tensor, "N"]  # in the decoder's state, which also keeps some that have finished
    going: Bool[Tensor, "N"]  # not finished yet
    tokens: Int[Tensor, "N"]  # the last of each
    nodes: Int[Tensor, "N"]
    history: Int[Tensor, "N T"]  # the tokens so far; T = 0 when no rule asks for them

    @classmethod
    def at_start(cls, sentences: Int[Tensor, "N"]) -> Walkers:
        """Return one for each of these sentences."""
        numbers = torch.arange(len(sentences), device=sentences.device)
        tokens = torch.full_like(numbers, BOS)
        return cls(
            numbers=numbers,
            sentences=sentences,
            rows=numbers,
            going=torch.ones_like(numbers, dtype=torch.bool),
            tokens=tokens,
            nodes=torch.full_like(numbers, ROOT),
            history=tokens[:, None][:, :0],
        )


class Take(Protocol):
    """A step of every walker, or of those in the `live` rows of the state, to its next token."""

    def __call__(
        self, progress: Progress[Walkers], live: Int[Tensor, "R"] | None = None
    ) -> tuple[Progress[Walkers], Shown]: ...


def walk(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    choose: Callable[[Moment], Int[Tensor, "N"]],
    *,
    config: SearchConfig,
    copies: int,
    limits: list[int],
    constraints: Constraints,
    need_alignment: bool,
) -> list[list[Hypothesis]]:
    """Walk from <s> to </s>, `copies` times for each sentence; `choose` says where each goes next.

    Walkers b·copies … b·copies + copies - 1 are those of sentence b.
    """
    most_tokens = torch.tensor(limits, device=source.device)
    rules = active_rules(config.rules, constraints, most_tokens, alone=True)
    sentences = torch.arange(len(source), device=source.device).repeat_interleave(copies)
    state = model.start(model.encode(source, source_mask))
    if copies > 1:
        state = state.keep(sentences)
    tree, counts = Tree(), Counts(source.device)

    def take(
        progress: Progress[Walkers], live: Int[Tensor, "R"] | None = None
    ) -> tuple[Progress[Walkers], Shown]:
        walkers, length = progress.open, progress.length
        step = model.decode_step(
            walkers.tokens, progress.state, live=live, need_alignment=need_alignment
        )
        log_probs = next_log_probs(model.project(step.hidden))
        ranks = apply(rules, Position(walkers.sentences, walkers.history, log_probs))
        ending = at_limit(most_tokens[walkers.sentences], length, min(limits))
        tokens = choose(Moment(log_probs, ranks, ending, walkers.numbers, length))
        nodes = _nodes(walkers, tokens, log_probs, ranks)
        going, history = walkers.going & (tokens != EOS), walkers.history
        if rules:
            history = torch.cat([history, tokens[:, None]], dim=1)
        after = replace(
            walkers, going=going, tokens=tokens, nodes=nodes.ids(progress.nodes), history=history
        )
        there = Progress(after, step.state, length + 1, progress.nodes + len(tokens))
        return there, Shown(nodes, step.alignment, going.sum()[None])

    _walk(
        take, Progress(Walkers.at_start(sentences), state, length=0, nodes=0),
        longest=max(limits), alike=not rules, tree=tree, counts=counts,
    )  # fmt: skip
    return tree.best(
        copies,
        penalty=lambda length: 1.0,
        limits=limits,
        source_lengths=source_mask.sum(1).tolist(),
    )


def _walk(
    take: Take,
    start: Progress[Walkers],
    *,
    longest: int,
    alike: bool,
    tree: Tree,
    counts: Counts,
) -> None:
    """Take step after step, until nobody is going; at its limit every walk ends.

    Args:
        alike: steps keep all shapes, for no rule asks for a history.
    """
    progress: Progress[Walkers] | None = start
    in_state = len(start.open.rows)
    repeats = counts.late and alike
    while progress is not None and progress.length <= longest:
        walkers = progress.open
        live = walkers.rows if len(walkers.rows) < in_state else None
        progress, shown = take(progress, live)
        tree.grow(shown.nodes, shown.alignment)
        walkers, state = progress.open, progress.state
        left = counts.read(shown.open)
        if left == [0]:
            return
        leave = left is not None and worth_leaving(left[0], in_state)
        stay = walkers.going.nonzero()[:, 0] if leave else counts.rows_to_compute(walkers.going)
        if stay is not None:
            if not len(stay):  # the count was late: the last have ended since
                return
            walkers = walkers.keep(stay)
            if leave:
                state, in_state = state.keep(walkers.rows), len(walkers.rows)
                walkers = replace(walkers, rows=torch.arange(in_state, device=counts.device))
            progress = replace(progress, open=walkers, state=state)
        if repeats:
            before, most = progress, longest + 1 - int(progress.length)
            progress = replayed(take, before, beam=1, most=most, tree=tree, counts=counts)
            repeats = progress is not before  # what was refused is not asked for again


def _nodes(
    walkers: Walkers,
    tokens: Int[Tensor, "N"],
    log_probs: Float[Tensor, "N V"],
    ranks: Float[Tensor, "N V"],
) -> Nodes:
    """Return what these tokens add to the tree."""
    own, rank = (of_all.gather(1, tokens[:, None])[:, 0] for of_all in (log_probs, ranks))
    # at the length limit </s> is taken even where a rule forbids it
    rank = torch.where(rank == -math.inf, own, rank)
    # only marks an end: a sentence has no more than are asked for, which the tree ranks
    scores = torch.where((tokens == EOS) & walkers.going, rank, -math.inf)
    return Nodes(
        sentences=walkers.sentences,
        parents=walkers.nodes,
        rows=walkers.rows,
        tokens=tokens,
        log_probs=own,
        ranks=rank,
        scores=scores,
        penalties=torch.zeros_like(own),
    )
