"""Sampling: next tokens are drawn, each as often as the model finds it likely."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from translate.attention.ancestry import number_on
from translate.models.seq2seq import Seq2Seq
from translate.search import filters
from translate.search.constraints import Constraints, length_limits, refuse_phrases
from translate.search.filters import Mass, Share, Temperature
from translate.search.hypothesis import Hypothesis
from translate.search.rules import NO_RULES, Rules
from translate.search.walk import Moment, walk
from translate.vocabulary import EOS


class SampleSearch:
    """`n_best` independent samples a sentence, the likeliest first; one may come twice.

    A token is drawn from softmax(log p / temperature), of which `top_k`, `top_p`, `min_p` and
    `typical_p` keep a part each, in this order. What is drawn depends on `seed` and the sentence
    alone, not on the sentences beside it, up to rounding. A higher `n_best` adds samples to the
    same ones, and a higher limit of lengths changes only those that met it.
    """

    def __init__(
        self,
        *,
        n_best: PositiveInt,
        temperature: Temperature,
        top_k: NonNegativeInt,
        top_p: Mass,
        min_p: Share,
        typical_p: Mass,
        seed: NonNegativeInt,
        max_length_ratio: NonNegativeFloat,
        max_length_offset: PositiveInt,
        rules: Rules = NO_RULES,
    ) -> None:
        self.n_best = n_best
        self.temperature = temperature
        self.top_k, self.top_p, self.min_p, self.typical_p = top_k, top_p, min_p, typical_p
        self.seed = seed
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
        refuse_phrases(constraints, "sample")
        rows = zip(source.tolist(), source_mask.tolist(), strict=True)
        sentences = [list(itertools.compress(*row)) for row in rows]
        lengths = [len(ids) for ids in sentences]
        limits = length_limits(
            lengths, self.max_length_ratio, self.max_length_offset, constraints,
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
            model, source, source_mask, draw, copies=self.n_best, limits=limits, rules=self.rules,
            constraints=constraints, need_alignment=need_alignment,
        )  # fmt: skip

    def filtered(self, ranks: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Logarithms of the probabilities that are drawn from."""
        log_probs = (ranks / self.temperature).log_softmax(1)
        if self.top_k:
            log_probs = filters.top_k(log_probs, self.top_k).log_softmax(1)
        if self.top_p < 1:
            log_probs = filters.top_p(log_probs, self.top_p).log_softmax(1)
        if self.min_p > 0:
            log_probs = filters.min_p(log_probs, self.min_p).log_softmax(1)
        if self.typical_p < 1:
            log_probs = filters.typical(log_probs, self.typical_p).log_softmax(1)
        return log_probs

    def _chances(self, sentences: Sequence[list[int]], limits: list[int]) -> Float[Tensor, "W T"]:
        """A number in [0, 1) for each token of each walker."""
        table = torch.zeros(len(sentences), self.n_best, max(limits) + 1)
        for of_sentence, ids, limit in zip(table, sentences, limits, strict=True):
            for walker, row in enumerate(of_sentence):  # a stream each: a longer one goes on alike
                digest = hashlib.sha256(f"{self.seed} {walker} {ids}".encode()).digest()
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
