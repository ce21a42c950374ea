"""Local attention (Luong et al. 2015, section 3.2): a window of the source, [p_t - D, p_t + D].

Positions count from 0. The part of a window that lies outside the sentence is ignored, as in the
paper; a window with no word of the sentence in it has weights, and so a context, of zeros. All
scores are computed and those outside are hidden: for sentences one matrix product is cheaper than
gathering windows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.alignment import Alignment
from translate.attention.masks import window_around
from translate.attention.scaled_dot_product import softmax_where


class MonotonicAlignment(Alignment):
    """local-m: source and target run side by side,  p_t = t,  a_t = softmax within the window."""

    def __init__(self, *, query_size: int, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        window = window_around(position, scores.shape[-1], self.window)
        return softmax_where(scores, mask[:, None] & window)


class PredictiveAlignment(Alignment):
    """local-p: the query says where to look (eq. 9 and 10, σ = D/2).

    p_t = S · sigmoid(v_pᵀ tanh(W_p s_t))
    a_t(i) = align(s_t, h_i) · exp(-(i - p_t)² / 2σ²)

    S is the sentence's own length, </s> counted and padding not; its places are 0 … S-1. Through
    the Gaussian p_t is learned. It is not normalised again: it is exp(-2) at the window's edge and
    1 at p_t, so a row sums to something between the two, and the context is as much smaller.
    """

    def __init__(self, *, query_size: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.W_p = nn.Linear(query_size, query_size, bias=False)
        self.v_p = nn.Linear(query_size, 1, bias=False)

    def centres(
        self, query: Float[Tensor, "B T Q"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T"]:
        """p_t, from 0 to S."""
        # float32 at least: bf16 cannot tell neighbours apart from position 256 on
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            seen = torch.tanh(F.linear(query.to(wide), self.W_p.weight.to(wide)))
            where = torch.sigmoid(F.linear(seen, self.v_p.weight.to(wide))).squeeze(-1)
            return mask.sum(1, keepdim=True) * where

    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        centres = self.centres(query, mask)
        window = window_around(centres, scores.shape[-1], self.window)
        distance = torch.arange(scores.shape[-1], device=scores.device) - centres[..., None]
        sigma = self.window / 2
        gaussian = torch.exp(-(distance**2) / (2 * sigma**2))
        return softmax_where(scores, mask[:, None] & window) * gaussian.to(scores.dtype)


LOCAL: dict[str, type[MonotonicAlignment | PredictiveAlignment]] = {
    "local_m": MonotonicAlignment,
    "local_p": PredictiveAlignment,
}
