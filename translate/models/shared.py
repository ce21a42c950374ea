"""Parts that families share: dropout (cheap on a CPU), lists of layers, tied embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq


class _ByteDropout(torch.autograd.Function):
    """y = x · keep / P(keep); keeps only a byte an element for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        keep = _random_bytes(x).ge_(dropped)  # 0 or 1 in a byte: multiplies faster than a bool
        ctx.save_for_backward(keep)
        ctx.scale = 256 / (256 - dropped)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradient * keep).mul_(ctx.scale), None


def _random_bytes(like: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """Random bytes: a draw of the generator makes eight and costs as much as one."""
    count = like.numel()
    words = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.uint8)[:count].view(like.shape)


class Dropout(nn.Module):
    """Srivastava et al. 2014.

    On a CPU the rate is rounded to the nearest 1/256 (but not to 0 or 1), and the scale follows the
    rounded rate, so that the expectation is exact.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0:
            return x
        dropped = round(self.p * 256)
        fused = x.device.type != "cpu" or torch.compiler.is_compiling()  # PyTorch's, then
        if fused or dropped in (0, 256):
            return F.dropout(x, self.p)
        return _ByteDropout.apply(x, dropped)  # type: ignore[no-any-return, no-untyped-call]

    def extra_repr(self) -> str:
        return f"p={self.p}"


class LayerDrop(nn.Module):
    """Dropout of whole layers in training, unscaled in use (Fan et al. 2020).

    A layer that is passed by is computed all the same: each process of DDP and FSDP, and a
    compiled graph, meets every weight in every step. So it saves no time. All sentences of a batch
    pass the same layers by, and so do R-Drop's two passes over them.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(
        self, entered: Float[Tensor, "*shape"], left: Float[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape"]:
        """Choose what the next layer reads: this one's input or its output."""
        if not self.training or self.p == 0:
            return left
        stays = torch.rand((), device=left.device) >= self.p
        return torch.where(stays, left, entered)

    def extra_repr(self) -> str:
        return f"p={self.p}"


Layer = TypeVar("Layer", bound=nn.Module)


class Stack(nn.ModuleList, Generic[Layer]):
    """An `nn.ModuleList` of one kind of layer."""

    if TYPE_CHECKING:  # PyTorch's own annotation forgets what is in the list

        def __iter__(self) -> Iterator[Layer]: ...


Tied = Literal["all", "decoder", "none"]
TIED = "embeddings that are one matrix: all, decoder (its output and target embeddings) or none"


def tie(model: Seq2Seq, tied: Tied) -> None:
    """Make the output's matrix the target embeddings (`decoder`), and the source's too (`all`).

    Raises:
        UserError: only a joint vocabulary can have joint embeddings.
    """
    source, target = model.source_vocab_size, model.target_vocab_size
    if tied == "all" and source != target:
        raise UserError(
            f"source and target vocabularies differ ({source} and {target} pieces), so their "
            "embeddings cannot be tied: model.tied_embeddings=decoder or tokenizer.joint=true"
        )
    if tied in ("all", "decoder"):
        model.output.weight = model.target_embedding.weight
    if tied == "all":
        model.source_embedding.weight = model.target_embedding.weight
