"""The walk from <s> to </s>, one token after another: greedy search and sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.search.demand import Demands
from translate.search.hypothesis import Hypothesis
from translate.search.rules import Position, Rules, apply
from translate.search.scoring import next_log_probs
from translate.search.tree import ROOT, Nodes, Tree
from translate.vocabulary import BOS, EOS


class Moment(NamedTuple):
    """What each walker chooses from."""

    log_probs: Float[Tensor, "N V"]  # the model's own
    ranks: Float[Tensor, "N V"]  # the same under the rules
    ending: Bool[Tensor, "N"]  # at the length limit: nothing but </s> is left
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
    demands: Demands,
    need_alignment: bool,
) -> list[list[Hypothesis]]:
    """`copies` walks for each sentence; `choose` says where each goes next.

    Walkers b·copies … b·copies + copies - 1 are those of sentence b.
    """
    active = rules.active(demands, source.device)
    most_tokens = torch.tensor(limits, device=source.device)
    walkers = torch.arange(len(source) * copies, device=source.device)  # those not finished yet
    tokens = torch.full_like(walkers, BOS)
    nodes = torch.full_like(walkers, ROOT)
    history = tokens[:, None][:, :0]
    state = model.start(model.encode(source, source_mask))
    if copies > 1:
        state = state.keep(walkers // copies)
    tree = Tree()
    for length in itertools.count():
        sentences = walkers // copies
        step = model.decode_step(tokens, state, need_alignment=need_alignment)
        log_probs = next_log_probs(model.project(step.hidden))
        ranks = apply(active, Position(sentences, history, log_probs))
        ending = most_tokens[sentences] <= length
        tokens = choose(Moment(log_probs, ranks, ending, walkers, length))
        own, rank = (table.gather(1, tokens[:, None])[:, 0] for table in (log_probs, ranks))
        rank = torch.where(rank == -math.inf, own, rank)  # a forbidden </s> that the limit forced
        scores = torch.where(tokens == EOS, rank, -math.inf)
        rows = torch.arange(len(tokens), device=tokens.device)
        none = torch.zeros_like(own)
        nodes = tree.grow(
            Nodes(sentences, nodes, rows, tokens, own, rank, scores, none), step.alignment
        )
        going = (tokens != EOS).nonzero()[:, 0]  # the one read from the device a step
        if not len(going):
            break
        state = step.state
        if active:
            history = torch.cat([history, tokens[:, None]], dim=1)
        if len(going) < len(tokens):
            state = state.keep(going)
            walkers, tokens, nodes, history = (x[going] for x in (walkers, tokens, nodes, history))
    return tree.best(
        copies,
        penalty=lambda length: 1.0,
        limits=limits,
        source_lengths=source_mask.sum(1).tolist(),
    )
