"""The walk from <s> to </s>, one token after another: greedy search and sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Constraints
from translate.search.counts import Counts, worth_leaving
from translate.search.hypothesis import Hypothesis
from translate.search.rules import Position, Rules, apply
from translate.search.scoring import next_log_probs
from translate.search.tree import ROOT, Nodes, Tree
from translate.vocabulary import BOS, EOS


class Moment(NamedTuple):
    """What each walker chooses from."""

    log_probs: Float[Tensor, "N V"]  # the model's own
    ranks: Float[Tensor, "N V"]  # the same under the rules
    ending: Bool[Tensor, "N"] | None  # at the length limit: only </s> is left; None: nobody is
    walkers: Int[Tensor, "N"]  # index in the whole batch
    length: int  # tokens so far


Choose = Callable[[Moment], Int[Tensor, "N"]]


def walk(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    choose: Choose,
    *,
    copies: int,
    limits: list[int],
    rules: Rules,
    constraints: Constraints,
    need_alignment: bool,
) -> list[list[Hypothesis]]:
    """`copies` walks for each sentence; `choose` says where each goes next.

    Walkers b·copies … b·copies + copies - 1 are those of sentence b.
    """
    most_tokens = torch.tensor(limits, device=source.device)
    active = rules.active(constraints, most_tokens, alone=True)
    walkers = torch.arange(len(source) * copies, device=source.device)  # those in the batch
    sentences = walkers // copies
    going = torch.ones_like(walkers, dtype=torch.bool)  # not finished yet
    tokens = torch.full_like(walkers, BOS)
    nodes = torch.full_like(walkers, ROOT)
    history = tokens[:, None][:, :0]
    state = model.start(model.encode(source, source_mask))
    if copies > 1:
        state = state.keep(sentences)
    tree, counts = Tree(), Counts(source.device)
    # the row of each in the state, which also keeps rows of some that have finished
    rows, in_state = torch.arange(len(walkers), device=source.device), len(walkers)
    for length in range(max(limits) + 1):  # at its limit every walk ends
        live = rows if len(rows) < in_state else None
        step = model.decode_step(tokens, state, live=live, need_alignment=need_alignment)
        state = step.state
        log_probs = next_log_probs(model.project(step.hidden))
        ranks = apply(active, Position(sentences, history, log_probs))
        ending = most_tokens[sentences] <= length if length >= min(limits) else None
        tokens = choose(Moment(log_probs, ranks, ending, walkers, length))
        own = rank = log_probs.gather(1, tokens[:, None])[:, 0]
        if active:
            rank = ranks.gather(1, tokens[:, None])[:, 0]
            # at the length limit </s> is taken even where a rule forbids it
            rank = torch.where(rank == -math.inf, own, rank)
            history = torch.cat([history, tokens[:, None]], dim=1)
        ended = tokens == EOS
        # only marks an end: a sentence has no more than are asked for, which the tree ranks
        scores = torch.where(ended & going, rank, -math.inf)
        none = torch.zeros_like(own)
        nodes = tree.grow(
            Nodes(sentences, nodes, rows, tokens, own, rank, scores, none), step.alignment
        )
        going = going & ~ended
        left = counts.read(going.sum()[None])
        if left == [0]:
            break
        leave = left is not None and worth_leaving(left[0], in_state)
        stay = going.nonzero()[:, 0] if leave else counts.rows_to_compute(going)
        if stay is None:
            continue
        if not len(stay):  # the count was late: the last have ended since
            break
        walkers, sentences, going, tokens, nodes, history, rows = (
            x[stay] for x in (walkers, sentences, going, tokens, nodes, history, rows)
        )
        if leave:
            state, in_state = state.keep(rows), len(rows)
            rows = torch.arange(in_state, device=rows.device)
    return tree.best(
        copies,
        penalty=lambda length: 1.0,
        limits=limits,
        source_lengths=source_mask.sum(1).tolist(),
    )
