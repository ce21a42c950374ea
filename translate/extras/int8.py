"""Products in int8: y = x Wᵀ + b of whole numbers of eight bits, on x86 processors with AVX2.

A weight is stored as whole numbers and a scale for each output, once. Of what is multiplied by it,
each row has a scale of its own, so that a row gives the same among any others: sums of whole
numbers do not depend on their order. Attention is computed in float32, and rounds a text's numbers
in the same way where its padding ends at a multiple of 16 tokens.

A processor without instructions for this (VNNI) adds two products in 16 bits. A weight of seven
bits leaves room for that, and makes the numbers the same on every processor.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from translate.errors import UserError
from translate.linear import Copy, Linear, Prepacked, prepack
from translate.models.seq2seq import Seq2Seq

ENGINE = "fbgemm"
LARGEST_WEIGHT = 63  # 2 · 63 · 255 < 2^15
LARGEST = 127  # of a row, which is stored from 1 to 255
SOURCE_MULTIPLE = 16  # of this many tokens attention gives the same bits, however many are padding
SMALLEST_SIDE = 32  # smaller matrices stay as they are: they cost nothing, and often decide much


@dataclass(frozen=True)
class Quantized(Copy):
    """A weight in int8, laid out for FBGEMM."""

    packed: Any

    @classmethod
    def of(cls, weight: Float[Tensor, "O I"]) -> Quantized | Prepacked | None:
        """Store a weight as whole numbers; a small one as it is, or one that counts no changes."""
        if min(weight.shape) < SMALLEST_SIDE or weight.is_inference():
            return Prepacked.of(weight)
        matrix = weight.detach().float()
        scales = matrix.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT
        zeros = torch.zeros(len(matrix), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # PyTorch will store such tensors otherwise
            numbers = torch.quantize_per_channel(matrix, scales.double(), zeros, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(numbers, None)
        return cls(weight, weight._version, packed)

    def product(
        self, x: Float[Tensor, "*rows I"], bias: Float[Tensor, "O"] | None
    ) -> Float[Tensor, "*rows O"]:
        """Compute x Wᵀ + b; a row of zeros gives b."""
        scale = x.abs().amax(-1, keepdim=True)
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / scale, 1 / LARGEST, LARGEST + 1, self.packed
        )
        return y.mul_(scale) if bias is None else torch.addcmul(bias, y, scale)


def quantize(model: Seq2Seq) -> None:
    """Let a model multiply in int8 from now on, and give the memory of its weights back.

    Embeddings keep theirs, recurrences, which read whole sentences by other kernels, and the last
    products, from whose rows a shortlist chooses.

    Raises:
        UserError: this processor or this device cannot.
    """
    if ENGINE not in torch.backends.quantized.supported_engines:
        raise UserError("precision=int8 needs an x86 processor with AVX2: leave it out")
    if any(weight.device.type != "cpu" for weight in model.parameters()):
        raise UserError("precision=int8 only works on a CPU: set device=cpu, or precision=bf16")
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        prepack(model, Quantized.of)
    finally:
        torch.backends.quantized.engine = before
    model.source_multiple = math.gcd(SOURCE_MULTIPLE, model.max_length or 0)
    modules = list(model.modules())
    spared = {id(each.weight) for each in modules if isinstance(each, nn.Embedding)}
    last = (getattr(each, "output", None) for each in modules if isinstance(each, Seq2Seq))
    spared |= {id(each.weight) for each in last if each is not None}  # an ensemble has none
    for each in modules:
        if not isinstance(each, Linear) or id(each.weight) in spared:
            continue
        if isinstance(each.copy_of(each.weight), Quantized):
            # whoever reads it all the same gets no numbers
            each.weight.data = each.weight.new_full((), torch.nan).expand(each.weight.shape)
