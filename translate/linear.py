"""y = x Wᵀ + b, multiplied by the faster of the libraries that PyTorch was built with.

PyTorch gives float32 products of a CPU to MKL. oneDNN, which it gives bf16 to, reaches 105 GFLOP/s
where MKL reaches 84 to 92 on a core of an AMD EPYC (Zen 4). So it is taken for training, and for
translating with weights laid out beforehand.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
    torch.ops.mkldnn, "_linear_pointwise"
)
# oneDNN, and PyTorch above it, keep what they compile for every number of rows: 1,024 kernels of up
# to half a megabyte, where batches come in ever new sizes. Equal layers, one after another, share a
# dozen. Both read these limits at the first product.
LIMITS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
for _limit in LIMITS:
    os.environ.setdefault(_limit, "32")
TYPICAL_ROWS = 64  # of a step, for which a weight is prepacked


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
    """Whether oneDNN computes this product; never under `torch.compile`, which cannot trace it."""
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


class Prepacked(NamedTuple):
    """A weight in the layout that oneDNN multiplies fastest."""

    weight: Tensor
    origin: Tensor  # what it was made from, and which of its versions: it counts its changes
    version: int


class Linear(nn.Linear):
    """`torch.nn.Linear`, faster where a CPU trains in float32 or translates; equal up to rounding.

    A weight that is not going to change may be laid out beforehand (`prepack`): for a product of
    its own oneDNN does that each time, and MKL is slow with few rows. The product of a row is then
    also the same to the bit among any others, but for wide weights (2,048) and a row by itself.
    """

    _prepacked: Prepacked | None = None

    def prepack(self) -> None:
        """Lay the weight out beforehand, where oneDNN takes it; the copy is as large again."""
        weight = self.weight.detach()
        if _takes(weight):
            layout = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TYPICAL_ROWS)
            self._prepacked = Prepacked(layout, self.weight, self.weight._version)

    def forward(self, input: Float[Tensor, "*rows I"]) -> Float[Tensor, "*rows O"]:
        if self._prepacked is not None and self._serves(input, self._prepacked):
            y: Tensor = torch.ops.mkldnn._linear_pointwise(
                input.contiguous(), self._prepacked.weight, self.bias, "none", [], ""
            )
            return y
        if self.training and multiplies(input, self.weight):
            return _Product.apply(input, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]
        return F.linear(input, self.weight, self.bias)

    def _serves(self, input: Tensor, prepacked: Prepacked) -> bool:
        """Whether the copy is still of the weight, and no gradient can be asked for."""
        return (
            self.weight is prepacked.origin
            and self.weight._version == prepacked.version
            and input.numel() > 0
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self._prepacked = None  # the weight gets another type or device
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """Without the prepacked copy, which can be neither copied nor stored."""
        return {name: value for name, value in self.__dict__.items() if name != "_prepacked"}


def prepack(model: nn.Module) -> None:
    """Make the products of a model that is not going to change faster on a CPU."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.prepack()


def _takes(weight: Tensor) -> bool:
    if not AVAILABLE or weight.device.type != "cpu" or weight.is_inference():
        return False  # tensors of the inference mode count no changes
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
