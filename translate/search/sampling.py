"""Greedy search and sampling: one token after another, the likeliest or one that is drawn."""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from translate.attention.cache import Number, Places, number_on
from translate.search.beam import Asked, Beam, Beams
from translate.search.constraints import apply
from translate.search.hypothesis import MOST, SearchConfig
from translate.search.scoring import Candidates, only_end

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


class GreedySearch(Beams):
    """One hypothesis a sentence: a beam of one, whose translations are ranked by log P."""

    Config: ClassVar = GreedyConfig


class SampleSearch(Beams):
    """`n_best` independent samples a sentence, the likeliest first; one may come twice.

    A token is drawn from softmax(log p / temperature), of which `top_k`, `top_p`, `min_p` and
    `typical_p` keep a part each, in this order. What is drawn depends on `seed` and the sentence
    alone, not on the sentences beside it, up to rounding. A higher `n_best` adds samples to the
    same ones, and a higher limit of lengths changes only those that met it. Each sample is a beam
    of one.
    """

    Config: ClassVar = SampleConfig

    config: SampleConfig

    def __init__(self, config: SampleConfig) -> None:
        super().__init__(config, groups=config.n_best)

    def _candidates(
        self,
        beam: Beam,
        places: Places,
        logits: Float[Tensor, "R V"],
        length: Number,
        ending: Bool[Tensor, "B"] | None,
        asked: Asked,
    ) -> tuple[Candidates, None]:
        """Return the token that is drawn for each sample."""
        at = self._position(beam, places, logits)
        ranks = apply(asked.rules, at)
        # of one dimension: an index of none would be waited for
        here = number_on(logits.device, length)[None]
        assert asked.chances is not None
        chances = places.rows(asked.chances[beam.beams, here][:, None])
        tokens = drawn_from(self.filtered(ranks), chances)[:, None]
        at_end = ranks.isneginf().all(1)  # the rules have left nothing
        if ending is not None:
            at_end = at_end | places.rows(ending[:, None])
        return only_end(tokens, ranks.gather(1, tokens), at.log_probs, at_end), None

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

    def _chances(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], limits: list[int]
    ) -> Float[Tensor, "W T"]:
        table = torch.zeros(len(source), self.config.n_best, max(limits) + 1)
        rows = zip(table, source.tolist(), source_mask.tolist(), limits, strict=True)
        for of_sentence, tokens, real, limit in rows:
            ids = list(itertools.compress(tokens, real))
            for sample, row in enumerate(of_sentence):  # a stream each: a longer one goes on alike
                digest = hashlib.sha256(f"{self.config.seed} {sample} {ids}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
                row[: limit + 1] = torch.rand(limit + 1, generator=generator)
        return table.flatten(0, 1).to(source.device)


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
