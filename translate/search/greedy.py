"""Greedy search: the likeliest next token, again and again."""

from __future__ import annotations

import itertools
import math

import torch
from jaxtyping import Bool, Int
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.search.hypothesis import Hypothesis
from translate.search.scoring import best_next, length_limits
from translate.search.tree import ROOT, Nodes, Tree
from translate.vocabulary import BOS, EOS


class GreedySearch:
    """One hypothesis a sentence; equal to beam search with a beam of one.

    A translation has at most max_length_ratio · source length + max_length_offset tokens, and no
    more than the model can read.
    """

    def __init__(
        self, *, max_length_ratio: NonNegativeFloat, max_length_offset: PositiveInt
    ) -> None:
        self.max_length_ratio = max_length_ratio
        self.max_length_offset = max_length_offset

    @torch.inference_mode()
    def __call__(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        need_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        source_lengths = source_mask.sum(1).tolist()
        limits = length_limits(
            source_lengths, self.max_length_ratio, self.max_length_offset,
            readable=model.max_length,
        )  # fmt: skip
        most_tokens = torch.tensor(limits, device=source.device)
        sentences = torch.arange(len(source), device=source.device)  # those not finished yet
        tokens = torch.full_like(sentences, BOS)
        nodes = torch.full_like(sentences, ROOT)
        state = model.start(model.encode(source, source_mask))
        tree = Tree()
        for length in itertools.count():
            step = model.decode_step(tokens, state, need_alignment=need_alignment)
            ending = most_tokens[sentences] <= length
            best, choice = best_next(model.project(step.hidden), 1, ending=ending)
            log_probs, tokens = best[:, 0], choice[:, 0]
            scores = torch.where(tokens == EOS, log_probs, -math.inf)
            rows = torch.arange(len(tokens), device=tokens.device)
            none = torch.zeros_like(log_probs)
            grown = Nodes(sentences, nodes, rows, tokens, log_probs, scores, none)
            nodes = tree.grow(grown, step.alignment)
            going = (tokens != EOS).nonzero()[:, 0]  # the one read from the device a step
            if not len(going):
                break
            state = step.state
            if len(going) < len(tokens):
                state = state.keep(going)
                sentences, tokens, nodes = sentences[going], tokens[going], nodes[going]
        return tree.best(
            1, penalty=lambda length: 1.0, limits=limits, source_lengths=source_lengths
        )
