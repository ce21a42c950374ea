"""Filters: which part of a distribution sampling draws from.

Each keeps the logarithms of what it keeps as they are and sets the others to -inf.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

# log p / 1e-42 is beyond float32, and 1e39 itself
Temperature = Annotated[float, Field(ge=1e-3, le=1e6)]


def top_k(log_probs: Float[Tensor, "N V"], count: int) -> Float[Tensor, "N V"]:
    """The `count` likeliest tokens (Fan et al. 2018)."""
    best = log_probs.topk(min(count, log_probs.shape[1]))
    return torch.full_like(log_probs, -math.inf).scatter(1, best.indices, best.values)


def top_p(log_probs: Float[Tensor, "N V"], mass: float) -> Float[Tensor, "N V"]:
    """The nucleus: the fewest likeliest tokens that hold `mass` together (Holtzman et al. 2020)."""
    return _first_to_hold(mass, log_probs, order=-log_probs)


def min_p(log_probs: Float[Tensor, "N V"], share: float) -> Float[Tensor, "N V"]:
    """Tokens at least `share` times as likely as the likeliest (Nguyen et al. 2025)."""
    least = log_probs.amax(1, keepdim=True) + math.log(share)
    return log_probs.masked_fill(log_probs < least, -math.inf)


def typical(log_probs: Float[Tensor, "N V"], mass: float) -> Float[Tensor, "N V"]:
    """The fewest tokens that hold `mass`, those first whose surprise is nearest to the expected:

    |-log p(y) - H|, where H is the entropy (Meister et al. 2023, eq. 10).
    """
    entropy = torch.special.entr(log_probs.exp()).sum(1, keepdim=True)
    return _first_to_hold(mass, log_probs, order=(-log_probs - entropy).abs())


def _first_to_hold(
    mass: float, log_probs: Float[Tensor, "N V"], *, order: Float[Tensor, "N V"]
) -> Float[Tensor, "N V"]:
    """The fewest tokens, taken by rising `order`, whose probabilities add up to `mass`."""
    index = order.argsort(dim=1, stable=True)
    probs = log_probs.gather(1, index).exp()
    needed = F.pad(probs.cumsum(1)[:, :-1], (1, 0)) < mass
    needed[:, 0] = True  # a mass may be so small that as a float32 it is 0
    kept = torch.zeros_like(needed).scatter(1, index, needed)
    return log_probs.masked_fill(~kept, -math.inf)
