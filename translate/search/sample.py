"""Sampling: next tokens are drawn, each as often as the model finds it likely."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.attention.cache import number_on
from translate.models.seq2seq import Seq2Seq
from translate.search import filters
from translate.search.constraints import Constraints, length_limits, refuse_phrases
from translate.search.filters import Temperature
from translate.search.hypothesis import MOST, Hypothesis, SearchConfig
from translate.search.walk import Moment, walk
from translate.vocabulary import EOS


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
        refuse_phrases(constraints, "sample")
        rows = zip(source.tolist(), source_mask.tolist(), strict=True)
        sentences = [list(itertools.compress(*row)) for row in rows]
        lengths = [len(ids) for ids in sentences]
        limits = length_limits(
            lengths, self.config.max_length_ratio, self.config.max_length_offset, constraints,
            max_length=model.max_length,
        )  # fmt: skip
        chances = self._chances(sentences, limits).to(source.device)

        def draw(now: Moment) -> Int[Tensor, "N"]:
            # of one dimension: an index of none would be waited for
            here = number_on(chances.device, now.length)[None]
            drawn = drawn_from(self.filtered(now.ranks), chances[now.walkers, here])
            stuck = now.ranks.isneginf().all(1)  # the rules have left nothing
            return torch.where(stuck if now.ending is None else now.ending | stuck, EOS, drawn)

        return walk(
            model, source, source_mask, draw, copies=self.config.n_best, limits=limits,
            rules=self.rules, constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip

    def filtered(self, ranks: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Logarithms of the probabilities that are drawn from."""
        config = self.config
        log_probs = (ranks / config.temperature).log_softmax(1)
        if config.top_k:
            log_probs = filters.top_k(log_probs, config.top_k).log_softmax(1)
        if config.top_p < 1:
            log_probs = filters.top_p(log_probs, config.top_p).log_softmax(1)
        if config.min_p > 0:
            log_probs = filters.min_p(log_probs, config.min_p).log_softmax(1)
        if config.typical_p < 1:
            log_probs = filters.typical(log_probs, config.typical_p).log_softmax(1)
        return log_probs

    def _chances(self, sentences: Sequence[list[int]], limits: list[int]) -> Float[Tensor, "W T"]:
        """A number in [0, 1) for each token of each walker."""
        table = torch.zeros(len(sentences), self.config.n_best, max(limits) + 1)
        for of_sentence, ids, limit in zip(table, sentences, limits, strict=True):
            for walker, row in enumerate(of_sentence):  # a stream each: a longer one goes on alike
                digest = hashlib.sha256(f"{self.config.seed} {walker} {ids}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
                row[: limit + 1] = torch.rand(limit + 1, generator=generator)
        return table.flatten(0, 1)


def drawn_from(log_probs: Float[Tensor, "N V"], chances: Float[Tensor, "N"]) -> Int[Tensor, "N"]:
    """The token in whose part of the line from 0 to 1 each chance falls."""
    ends = log_probs.exp().cumsum(1)
    total = ends[:, -1:]
    below = total.nextafter(torch.zeros_like(total))  # a product may be rounded up to the total
    points = torch.minimum(chances[:, None].to(ends.dtype) * total, below)
    found = torch.searchsorted(ends, points, right=True)[:, 0]
    return found.clamp(max=ends.shape[1] - 1)  # beyond the end for NaN alone
