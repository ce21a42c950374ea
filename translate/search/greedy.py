"""Greedy search: the likeliest next token, again and again."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Constraints, length_limits, refuse_phrases
from translate.search.hypothesis import Hypothesis
from translate.search.rules import NO_RULES, Rules
from translate.search.scoring import best_next
from translate.search.walk import Moment, walk


class GreedySearch:
    """One hypothesis a sentence; equal to beam search with a beam of one.

    A translation has at most max_length_ratio · source length + max_length_offset tokens, and no
    more than the model can read.
    """

    def __init__(
        self,
        *,
        max_length_ratio: NonNegativeFloat,
        max_length_offset: PositiveInt,
        rules: Rules = NO_RULES,
    ) -> None:
        self.max_length_ratio = max_length_ratio
        self.max_length_offset = max_length_offset
        self.rules = rules

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
        refuse_phrases(constraints, "greedy")
        limits = length_limits(
            source_mask.sum(1).tolist(), self.max_length_ratio, self.max_length_offset, constraints,
            max_length=model.max_length,
        )  # fmt: skip
        return walk(
            model, source, source_mask, _likeliest, copies=1, limits=limits, rules=self.rules,
            constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip


def _likeliest(now: Moment) -> Int[Tensor, "N"]:
    return best_next(now.log_probs, now.ranks, 1, ending=now.ending).tokens[:, 0]
