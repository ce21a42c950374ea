"""Greedy search: the likeliest next token, again and again."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from translate.models.seq2seq import Seq2Seq
from translate.search.constraints import Constraints, length_limits, refuse_phrases
from translate.search.hypothesis import Hypothesis, SearchConfig
from translate.search.scoring import best_next
from translate.search.walk import Moment, walk


class GreedyConfig(SearchConfig):
    """The node `search` of greedy search."""

    kind: Literal["greedy"] = Field(description="the likeliest next piece, again and again")


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
        refuse_phrases(constraints, "greedy")
        limits = length_limits(
            source_mask.sum(1).tolist(), self.config.max_length_ratio,
            self.config.max_length_offset, constraints, max_length=model.max_length,
        )  # fmt: skip
        return walk(
            model, source, source_mask, _likeliest, copies=1, limits=limits, rules=self.rules,
            constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip


def _likeliest(now: Moment) -> Int[Tensor, "N"]:
    return best_next(now.log_probs, now.ranks, 1, ending=now.ending).tokens[:, 0]
