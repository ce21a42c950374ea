"""y = x Wᵀ + b, multiplied by the faster of the libraries that PyTorch was built with.

PyTorch gives float32 products of a CPU to MKL. oneDNN, which it gives bf16 to, reaches 105 GFLOP/s
where MKL reaches 84 to 92 on a core of an AMD EPYC (Zen 4). So it is taken for training, and for
translating with weights laid out beforehand.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

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
    """Compute x Wᵀ + b, by oneDNN (and then without a gradient) where it can take them."""
    if multiplies(x, weight):
        return _by_onednn(x, weight, bias)
    return F.linear(x, weight, bias)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x Wᵀ + b; the weight may be laid out beforehand."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
    return y


def multiplies(x: Tensor, weight: Tensor) -> bool:
    """Tell whether oneDNN computes this product; `torch.compile` cannot trace it."""
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


@dataclass(frozen=True)
class Copy(ABC):
    """A copy of a weight that will not change, by which products are faster.

    A change of the weight is noticed where PyTorch counts it, so not through `weight.data` or
    NumPy.

    Attributes:
        origin: the weight that it was made from, which then was of this `version`.
    """

    origin: Tensor
    version: int

    def serves(self, x: Float[Tensor, "*rows I"], weight: Float[Tensor, "O I"]) -> bool:
        """Tell whether the copy is still of the weight, and no gradient can be asked for."""
        return (
            weight is self.origin
            and weight._version == self.version
            and x.numel() > 0
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )

    @abstractmethod
    def product(
        self, x: Float[Tensor, "*rows I"], bias: Float[Tensor, "O"] | None
    ) -> Float[Tensor, "*rows O"]:
        """Compute x Wᵀ + b."""


@dataclass(frozen=True)
class Prepacked(Copy):
    """A weight laid out once for oneDNN, which else does it each time; as large again.

    MKL is slow with few rows. With the copy, the product of a row is also the same to the bit
    among any others, except for wide weights (2,048) and a row by itself.
    """

    layout: Tensor

    @classmethod
    def of(cls, weight: Float[Tensor, "O I"]) -> Prepacked | None:
        """Lay a weight out; None where oneDNN does not take it."""
        if not _takes(weight):
            return None
        matrix = weight.detach().contiguous()
        layout = torch.ops.mkldnn._reorder_linear_weight(matrix, TYPICAL_ROWS)
        return cls(weight, weight._version, layout)

    def product(
        self, x: Float[Tensor, "*rows I"], bias: Float[Tensor, "O"] | None
    ) -> Float[Tensor, "*rows O"]:
        return _by_onednn(x, self.layout, bias)


LayOut = Callable[[Tensor], Copy | None]


class Prepackable(nn.Module, ABC):
    """A module whose weights may be laid out beforehand, where a CPU translates."""

    _prepacked: Mapping[int, Copy] = MappingProxyType({})  # by the weight's `id`

    @abstractmethod
    def matrices(self) -> list[Float[Tensor, "O I"]]:
        """Return the weights that it multiplies by."""

    def prepack(self, lay_out: LayOut = Prepacked.of) -> None:
        """Lay out all weights that can be."""
        copies = {id(weight): lay_out(weight) for weight in self.matrices()}
        self._prepacked = {key: copy for key, copy in copies.items() if copy is not None}

    def prepacked(self, x: Float[Tensor, "*rows I"], weight: Float[Tensor, "O I"]) -> Copy | None:
        """Return the copy of one of its weights, where it can be multiplied by."""
        copy = self.copy_of(weight)
        return copy if copy is not None and copy.serves(x, weight) else None

    def copy_of(self, weight: Float[Tensor, "O I"]) -> Copy | None:
        """Return the copy of one of its weights, if it has one."""
        return self._prepacked.get(id(weight))

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._prepacked = {}  # a fused optimizer changes weights and counts no change
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self._prepacked = {}  # weights get another type or device
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the copies out, which can be neither copied nor stored."""
        return {name: value for name, value in self.__dict__.items() if name != "_prepacked"}


class Linear(Prepackable, nn.Linear):
    """A `torch.nn.Linear` that a CPU trains and translates with faster, and rounds otherwise."""

    def matrices(self) -> list[Float[Tensor, "O I"]]:
        return [self.weight]

    def forward(self, input: Float[Tensor, "*rows I"]) -> Float[Tensor, "*rows O"]:
        if copy := self.prepacked(input, self.weight):
            return copy.product(input, self.bias)
        if self.training and multiplies(input, self.weight):
            return _Product.apply(input, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]
        return F.linear(input, self.weight, self.bias)


def prepack(model: nn.Module, lay_out: LayOut = Prepacked.of) -> None:
    """Make the products of a model that will not change faster on a CPU."""
    for module in model.modules():
        if isinstance(module, Prepackable):
            module.prepack(lay_out)


def _takes(weight: Tensor) -> bool:
    if not AVAILABLE or weight.device.type != "cpu" or weight.is_inference():
        return False  # tensors of the inference mode count no changes
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
