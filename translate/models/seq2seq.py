"""The contract every model satisfies, and parts that the families share.

Training and search know nothing else of a model.

Shape letters, where a module does not explain its own:
B batch (sentences), S source length, T target length, D model size, H heads, L layers, K key size,
V vocabulary, N hypotheses (B × beam, sentence-major: rows b·n … b·n+n-1 belong to sentence b), and
R those of them that a step reads.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
)

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from translate.attention.cache import Number, Places
from translate.attention.packed import Packing
from translate.config import Node
from translate.errors import UserError

Output = TypeVar("Output")
Layer = TypeVar("Layer", bound=nn.Module)
# (hidden (N, D), barred (N, C)) → logits (N, C), -inf where they are barred
Projection = Callable[[Tensor, Tensor], Tensor]

# Ranges of options. A bundle may come from a stranger: no size may take all the memory there is.
Size = Annotated[int, Field(gt=0, le=1 << 20)]  # of vectors, positions, windows
Layers = Annotated[int, Field(gt=0, le=512)]
Rate = Annotated[float, Field(ge=0, lt=1)]  # of dropout


class ModelConfig(Node):
    """The node `model` of the configuration. A family names its options in a subclass."""

    # options that came after the first bundles, with the values that a bundle without them means
    since: ClassVar[Mapping[str, Any]] = {}

    family: str


@dataclass(frozen=True)
class Memory:
    """The encoder's output for the decoder. A family may add fields in a subclass."""

    states: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"]  # True = a real source token

    def at(self, sentences: Int[Tensor, "C"]) -> Memory:
        """Return these sentences, in this order; one named twice is there twice."""
        return Memory(self.states.index_select(0, sentences), self.mask.index_select(0, sentences))


class Decoded(NamedTuple):
    """The decoder's answer for whole target sentences."""

    hidden: Float[Tensor, "B T D"]
    alignment: Float[Tensor, "B L H T S"] | None


class DecoderState(Protocol):
    """The memory of a decoder between two steps. A state handed on must not be used again.

    It is made of dataclasses, lists and tuples of tensors; a field `length` counts the tokens that
    were read (models/state_tensors.py).
    """

    def select(self, hypotheses: Int[Tensor, "M"]) -> Self:
        """Rows to go on with, each by its present index: expands to a beam, prunes, reorders.

        Rows stay sentence-major and every sentence keeps the same number of them; the memory is
        not copied per hypothesis.
        """

    def keep(self, sentences: Int[Tensor, "C"]) -> Self:
        """Go on with these sentences alone: finished ones leave. One named twice goes on twice."""


def rows_of(sentences: Int[Tensor, "C"], beam: int) -> Int[Tensor, "M"]:
    """The rows that hold the hypotheses of these sentences, `beam` each."""
    return (sentences[:, None] * beam + torch.arange(beam, device=sentences.device)).flatten()


@dataclass(frozen=True)
class RowState(ABC):
    """A state with a row for each hypothesis, beside the memory of its sentence."""

    memory: Memory
    length: Number  # tokens read so far

    @property
    @abstractmethod
    def beam(self) -> int:
        """Hypotheses a sentence."""

    @abstractmethod
    def select(self, hypotheses: Int[Tensor, "M"]) -> Self:
        """Return rows to go on with, as `DecoderState` says."""

    def rows(self, places: Places) -> Self:
        """The rows of the live places."""
        return self if places.live is None else self.select(places.live)

    def spread(self, places: Places) -> Self:
        """Each row in its place; the contents of the others mean nothing."""
        return self if places.rows_at is None else self.select(places.rows_at)

    def keep(self, sentences: Int[Tensor, "C"]) -> Self:
        rows = rows_of(sentences, self.beam)
        return replace(self.select(rows), memory=self.memory.at(sentences))


class Step(NamedTuple):
    """The decoder's answer for one token of every hypothesis."""

    hidden: Float[Tensor, "R D"]  # of each hypothesis that was read
    state: DecoderState
    alignment: Float[Tensor, "N L H S"] | None  # of every row; it means nothing where none was read


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder. `decode` over a whole target equals repeated `decode_step`.

    The source ends with </s>; `target_in` begins with <s>. Nothing that depends on sentences is
    kept on the module between calls. `hidden` goes through `project` (the vocabulary) only where it
    is wanted.
    """

    source_embedding: nn.Embedding  # a row a source piece
    target_embedding: nn.Embedding  # a row a target piece
    output: nn.Linear  # hidden → vocabulary: weight (V, D), perhaps a bias (V)
    max_length: int | None = None  # tokens it can read of a side, <s> or </s> too; None: any number
    source_multiple = 1  # tokens: to translate, sources are padded to so many, or twice as many …
    why_padded: str | None = "this model only reads padded batches"  # None: it has `read_packed`
    # (source, target_in, sources, targets) → `hidden` (M, D) of every target token of sentences
    # laid end to end: `encode` and `decode` in one, without padding
    read_packed: Callable[[Tensor, Tensor, Packing, Packing], Tensor]
    Config: ClassVar[type[ModelConfig]]  # its options
    parallel: ClassVar[bool] = False  # all positions at once, by layers that go `through`
    recompute = False  # in the backward pass, what these layers would else remember

    def __init__(self, *, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size

    @abstractmethod
    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the source, once a sentence."""

    @abstractmethod
    def decode(
        self, target_in: Int[Tensor, "B T"], memory: Memory, *, need_alignment: bool = False
    ) -> Decoded:
        """Teacher forcing: `hidden[:, t]` predicts the token after `target_in[:, t]`.

        Padding comes last, behind all that a real token may see: no mask is needed, and the hidden
        vectors there mean nothing.
        """

    def read(
        self,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"],
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        """Teacher forcing from the words: `encode` and `decode` in one, which can be compiled."""
        memory = self.encode(source, source_mask)
        return self.decode(target_in, memory, need_alignment=need_alignment)

    @abstractmethod
    def start(self, memory: Memory) -> DecoderState:
        """The state before the first token, one hypothesis a sentence."""

    @abstractmethod
    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: DecoderState,
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        """Read one token of every hypothesis, or of those in the `live` rows of the state alone.

        What a row that was not read holds from then on means nothing.
        """

    def through(self, layer: Callable[..., Output], *inputs: Any) -> Output:
        """Compute a layer; with `recompute` only its inputs stay in memory.

        The rest is computed again for the gradients (Chen et al. 2016, arXiv:1604.06174). Dropout
        is the same the second time: the state of random generators is kept with them.
        """
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]
        return layer(*inputs)

    def in_dtype(self, dtype: torch.dtype) -> Self:
        """Return the model if its weights are of this type, else a copy: others may use it."""
        if all(weight.dtype == dtype for weight in self.parameters()):
            return self
        return copy.deepcopy(self).to(dtype)

    def project(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Logits over the target vocabulary."""
        logits: Tensor = self.output(hidden)
        return logits

    def projection(self, pieces: Int[Tensor, "C"]) -> Projection:
        """`project` to these target pieces alone, for many steps: their weights are copied once."""
        small = {name: tensor[pieces] for name, tensor in self.output.named_parameters()}

        def logits(
            hidden: Float[Tensor, "N D"], barred: Bool[Tensor, "N C"]
        ) -> Float[Tensor, "N C"]:
            return F.linear(hidden, **small).masked_fill_(barred, -math.inf)

        return logits


# Parts that families share: dropout (cheap on a CPU), lists of layers, tied embeddings.


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
