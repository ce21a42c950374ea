"""Where attention may look: every mask of the package is made here. True = may attend."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Real
from torch import Tensor


def padding_mask(lengths: Int[Tensor, "B"], width: int) -> Bool[Tensor, "B S"]:
    """Which of `width` positions hold real tokens."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Query t may see keys 0 … t (Vaswani et al. 2017, section 3.2.3)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def over_keys(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """A padding mask of keys, to broadcast over heads and queries."""
    return mask[:, None, None, :]


def window_around(centres: Real[Tensor, "*B T"], width: int, radius: int) -> Bool[Tensor, "*B T S"]:
    """Which of `width` positions lie in [centre - radius, centre + radius] (Luong, section 3.2)."""
    position = torch.arange(width, device=centres.device)
    return (position - centres[..., None]).abs() <= radius
