"""y = x Wᵀ + b, multiplied by the faster of the libraries that PyTorch was built with.

PyTorch gives float32 products of a CPU to MKL. oneDNN, which it gives bf16 to, reaches 105 GFLOP/s
where MKL reaches 84 to 92 on a core of an AMD EPYC (Zen 4), so that training goes through it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
    torch.ops.mkldnn, "_linear_pointwise"
)


def product(
    x: Float[Tensor, "*rows I"],
    weight: Float[Tensor, "O I"],
    bias: Float[Tensor, "O"] | None = None,
) -> Float[Tensor, "*rows O"]:
    """x Wᵀ + b, by oneDNN (and then without a gradient) where it can take them."""
    if multiplies(x, weight):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


def multiplies(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN takes these, and no compiler, which cannot trace it, looks on."""
    return (
        AVAILABLE
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            product(gradient, weight.T.contiguous()) if wants_x else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if wants_weight else None,  # MKL: copies none
            rows.sum(0) if wants_bias else None,
        )


class Linear(nn.Linear):
    """`torch.nn.Linear`, faster where a CPU trains in float32; the same up to rounding."""

    def forward(self, input: Float[Tensor, "*rows I"]) -> Float[Tensor, "*rows O"]:
        if self.training and multiplies(input, self.weight):
            return _Product.apply(input, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]
        return F.linear(input, self.weight, self.bias)
