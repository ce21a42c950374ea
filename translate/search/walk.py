"""The walk from <s> to </s>, one token after another: greedy search and sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.attention.cache import Number
from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Constraints, at_limit
from translate.search.counts import Counts, worth_leaving
from translate.search.hypothesis import Hypothesis
from translate.search.open_hypotheses import Batch
from translate.search.replay import Progress, Shown, replayed
from translate.search.rules import Position, RulesConfig, apply
from translate.search.scoring import next_log_probs
from translate.search.tree import ROOT, Nodes, Tree
from translate.vocabulary import BOS, EOS


class Moment(NamedTuple):
    """What each walker chooses from."""

    log_probs: Float[Tensor, "N V"]  # the model's own
    ranks: Float[Tensor, "N V"]  # the same under the rules
    ending: Bool[Tensor, "N"] | None  # at the length limit: only </s> is left; None: nobody is
    walkers: Int[Tensor, "N"]  # index in the whole batch
    length: Number  # tokens so far


Choose = Callable[[Moment], Int[Tensor, "N"]]


@dataclass(frozen=True)
class Walkers(Batch):
    """Those still in the batch, and where each stands."""

    numbers: Int[Tensor, "N"]  # index in the whole batch
    sentences: Int[Tensor, "N"]  # of each
    rows: Int[Tensor, "N"]  # in the decoder's state, which also keeps some that have finished
    going: Bool[Tensor, "N"]  # not finished yet
    tokens: Int[Tensor, "N"]  # the last of each
    nodes: Int[Tensor, "N"]
    history: Int[Tensor, "N T"]  # the tokens so far; T = 0 when no rule asks for them

    @classmethod
    def at_start(cls, sentences: Int[Tensor, "N"]) -> Walkers:
        """One for each of these."""
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
    """Leads every walker, or those in the `live` rows of the state, to its next token."""

    def __call__(
        self, progress: Progress[Walkers], live: Int[Tensor, "R"] | None = None
    ) -> tuple[Progress[Walkers], Shown]: ...


def walk(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    choose: Choose,
    *,
    copies: int,
    limits: list[int],
    rules: RulesConfig,
    constraints: Constraints,
    need_alignment: bool,
) -> list[list[Hypothesis]]:
    """`copies` walks for each sentence; `choose` says where each goes next.

    Walkers b·copies … b·copies + copies - 1 are those of sentence b.
    """
    most_tokens = torch.tensor(limits, device=source.device)
    active = rules.active(constraints, most_tokens, alone=True)
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
        ranks = apply(active, Position(walkers.sentences, walkers.history, log_probs))
        ending = at_limit(most_tokens[walkers.sentences], length, min(limits))
        tokens = choose(Moment(log_probs, ranks, ending, walkers.numbers, length))
        nodes = _nodes(walkers, tokens, log_probs, ranks)
        going, history = walkers.going & (tokens != EOS), walkers.history
        if active:
            history = torch.cat([history, tokens[:, None]], dim=1)
        after = replace(
            walkers, going=going, tokens=tokens, nodes=nodes.ids(progress.nodes), history=history
        )
        there = Progress(after, step.state, length + 1, progress.nodes + len(tokens))
        return there, Shown(nodes, step.alignment, going.sum()[None])

    _walk(
        take, Progress(Walkers.at_start(sentences), state, length=0, nodes=0),
        longest=max(limits), alike=not active, tree=tree, counts=counts,
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
    """Step after step, until nobody is going; at its limit every walk ends.

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
    """What these tokens add to the tree."""
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
