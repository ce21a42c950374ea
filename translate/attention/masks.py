"""Masks say where attention may look: those of the papers, and how they combine. True = may."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor


def padding_mask(lengths: Int[Tensor, "B"], width: int) -> Bool[Tensor, "B S"]:
    """Mark which of `width` positions hold real tokens."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Query t may see keys 0 … t (Vaswani et al. 2017, section 3.2.3).

    A fused kernel makes it itself, of `is_causal` (`dot_product.fused_attention`).
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def over_keys(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """A padding mask of keys, to broadcast over heads and queries."""
    return mask[:, None, None, :]


def added_to_scores(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """The mask as fused kernels take it: 0 where attention may look, -inf elsewhere.

    They convert a boolean mask at every call; one that serves many calls is converted once.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def window_around(centres: Real[Tensor, "*B T"], width: int, radius: int) -> Bool[Tensor, "*B T S"]:
    """Mark which of `width` positions lie in centre ± radius (Luong et al. 2015, section 3.2)."""
    position = torch.arange(width, device=centres.device)
    return (position - centres[..., None]).abs() <= radius


def both(
    one: Bool[Tensor, "..."] | None, other: Bool[Tensor, "..."] | None
) -> Bool[Tensor, "..."] | None:
    """The mask of what both masks let through; None lets everything through."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def summed(
    one: Float[Tensor, "..."] | None, other: Float[Tensor, "..."] | None
) -> Float[Tensor, "..."] | None:
    """Both terms of the scores; None adds nothing."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def sliding_window_mask(
    queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"], *, left: int, right: int
) -> Bool[Tensor, "*pairs"]:
    """Keys up to `left` before and `right` after the query (Beltagy et al. 2020, section 3.1)."""
    distance = keys - queries
    return (distance >= -left) & (distance <= right)


def strided_mask(
    queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"], *, stride: int
) -> Bool[Tensor, "*pairs"]:
    """Child et al. 2019, section 4.3, strided; the union of both sets (a merged head).

    A¹_i = {j : |i - j| ≤ l},  A²_i = {j : (i - j) mod l = 0};  a causal mask keeps their j ≤ i.
    """
    distance = queries - keys
    return (distance.abs() <= stride) | (distance % stride == 0)


def fixed_mask(
    queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"], *, stride: int, summary: int
) -> Bool[Tensor, "*pairs"]:
    """Child et al. 2019, section 4.3, fixed; the union of both sets (a merged head).

    A¹_i = {j : ⌊j/l⌋ = ⌊i/l⌋},  A²_i = {j : j mod l ≥ l - c};  a causal mask keeps their j ≤ i.
    """
    same_block = queries // stride == keys // stride
    return same_block | (keys % stride >= stride - summary)
