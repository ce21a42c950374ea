"""Label-smoothed cross-entropy that never holds the whole logits matrix.

Szegedy et al. 2016, section 7: the target is (1 - ε)·onehot(y) + ε/V. With p = softmax(W h + b),
    loss = -Σ_v target_v log p_v     and     ∂loss/∂logits = p - target,
so the gradient is formed while the logits of a few rows are at hand, and only ∂h, ∂W and ∂b stay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.linear import product

ROWS = 512  # a chunk's logits (512 × 8,000 floats, 16 MB) stay near the cache


class Losses(NamedTuple):
    """Sums over the rows, in nats."""

    smoothed: Float[Tensor, ""]  # differentiable
    nll: Float[Tensor, ""]  # -log p(y): for perplexity, no gradient
    guided: Float[Tensor, ""] | None = None  # no sum: the weighted mean that guidance adds


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
        wide = torch.promote_types(dtype, torch.float32)  # float64 stays float64
        with torch.autocast(device, enabled=False):
            matrix = weight.to(dtype)
            transposed = matrix.T.contiguous()
            smoothed, nll = (torch.zeros((), dtype=wide, device=hidden.device) for _ in range(2))
            learns = any(ctx.needs_input_grad)
            d_hidden = torch.empty_like(hidden, dtype=dtype)
            d_weight = torch.zeros_like(weight, dtype=wide)
            d_bias = torch.zeros(len(weight), dtype=wide, device=hidden.device)
            for start in range(0, len(hidden), ROWS):
                rows = slice(start, start + ROWS)
                h, y = hidden[rows].to(dtype), targets[rows, None]
                logits = product(h, matrix).to(wide)
                if bias is not None:
                    logits += bias
                log_p = logits.log_softmax(dim=1)
                of_target = log_p.gather(1, y).sum()
                nll -= of_target
                smoothed -= (1 - smoothing) * of_target + smoothing * log_p.mean(dim=1).sum()
                if not learns:
                    continue
                gradient = log_p.exp_().sub_(smoothing / len(weight))
                gradient.scatter_add_(1, y, gradient.new_full(y.shape, smoothing - 1))
                if bias is not None:
                    d_bias += gradient.sum(dim=0)
                gradient = gradient.to(dtype)
                d_hidden[rows] = product(gradient, transposed)
                if dtype == wide:
                    d_weight.addmm_(gradient.T, h)
                else:
                    d_weight += gradient.T @ h
        if learns:
            ctx.save_for_backward(
                d_hidden.to(hidden.dtype),
                d_weight.to(weight.dtype),
                None if bias is None else d_bias.to(bias.dtype),
            )
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return (
            d_hidden * scale.to(d_hidden.dtype),
            d_weight * scale.to(d_weight.dtype),
            None if d_bias is None else d_bias * scale.to(d_bias.dtype),
            None,
            None,
        )


def projected_cross_entropy(
    hidden: Float[Tensor, "R D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "R"],
    *,
    smoothing: float,
) -> Losses:
    """The loss of softmax(W h + b) against `targets`, row by row, summed."""
    sums = _ProjectedCrossEntropy.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return Losses(*sums)
