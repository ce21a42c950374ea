"""A Transformer's options, and its layers: attention and feed-forward, in residual connections.

Equations and sections without a name are of Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, KeysValues, Places
from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.attention.packed import Packing, SameSentence
from translate.attention.positions import Waves, new_relation
from translate.config import OnlyWith
from translate.linear import Linear
from translate.models.seq2seq import (
    TIED,
    Dropout,
    LayerDrop,
    Layers,
    ModelConfig,
    Rate,
    Size,
    Stack,
    Tied,
)
from translate.names import on_demand
from translate.wording import counted

SMALLEST_FLEX_HEAD = 16  # dimensions that the kernel of flex attention multiplies


class TransformerConfig(ModelConfig):
    """The options of a Transformer."""

    since: ClassVar = {"d_v": None, "flex_attention": False, "layer_drop": 0.0}

    family: Literal["transformer"] = Field(description="attention alone, no recurrence")
    d_model: Size = Field(description="size of a word's vector")
    num_heads: Size = Field(description="heads of an attention, which share d_model")
    num_kv_heads: Size = Field(
        description="heads of keys and values; fewer than num_heads: grouped-query attention; 1: "
        "multi-query"
    )
    d_v: Size | None = Field(
        description="size of a head's value in the attention over the source; null: d_model / "
        "num_heads, as a key"
    )
    encoder_layers: Layers = Field(description="layers of self-attention and feed-forward")
    decoder_layers: Layers = Field(description="layers with attention over the source, too")
    d_ff: Size = Field(description="size of a word's vector inside the feed-forward layers")
    activation: Literal["relu", "gelu", "swiglu"] = Field(
        description="function inside the feed-forward layers; swiglu has a third matrix"
    )
    norm: Literal["pre", "post"] = Field(
        description="pre: x + f(norm(x)); post: norm(x + f(x)), as in the paper: harder to train "
        "when deep"
    )
    normalization: Literal["layer", "rms"] = Field(
        description="layer normalization; rms: no mean is taken away and nothing is added"
    )
    positions: Literal["none", "sinusoidal", "learned", "relative", "rotary", "alibi"] = Field(
        description="how the order of words is known"
    )
    max_positions: Annotated[Size, OnlyWith("positions", "learned")] = Field(
        description="learned positions: the most pieces of a sentence"
    )
    max_distance: Annotated[Size, OnlyWith("positions", "relative")] = Field(
        description="relative positions: further words count as this far away"
    )
    self_attention: Literal[
        "full", "sliding_window", "strided", "fixed", "linear", "fast_weights"
    ] = Field(description="kind of self-attention")
    window: Annotated[Size, OnlyWith("self_attention", "sliding_window")] = Field(
        description="sliding_window: words that are seen; the decoder sees the last so many, the "
        "encoder half of them on each side"
    )
    stride: Annotated[Size, OnlyWith("self_attention", "strided", "fixed")] = Field(
        description="strided: 8 shows every 8th key; fixed: keys of a block"
    )
    summary: Annotated[Size, OnlyWith("self_attention", "fixed")] = Field(
        description="fixed: the last keys of a block, which all later queries see"
    )
    flex_attention: bool = Field(
        description="true: training on CUDA computes patterns, relative and alibi in one kernel"
    )
    tied_embeddings: Tied = Field(description=TIED)
    dropout: Rate = Field(description="rate of dropout of embeddings, and of what each layer adds")
    attention_dropout: Rate = Field(
        description="rate of dropout of attention weights, which linear and fast_weights do not "
        "have"
    )
    feed_forward_dropout: Rate = Field(description="rate of dropout inside the feed-forward layers")
    layer_drop: Rate = Field(description="share of whole layers that training passes by")

    @property
    def d_k(self) -> int:
        """The size of a head's key."""
        return self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """The size of a head's value in the attention over the source."""
        return self.d_v or self.d_k

    def contradictions(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield (
                f"d_model {self.d_model} is not divisible by {self.num_heads} heads "
                "(model.d_model, model.num_heads)"
            )
        elif self.positions == "rotary" and self.d_k % 2:
            yield (
                f"rotary positions rotate pairs of dimensions, but a head has {self.d_k} "
                "dimensions (model.positions, model.d_model, model.num_heads): make d_model / "
                "num_heads even"
            )
        if self.num_heads % self.num_kv_heads:
            yield (
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key/value heads evenly "
                "(model.num_heads, model.num_kv_heads)"
            )
        scored = self.positions in ("relative", "rotary", "alibi")
        if scored and self.self_attention in ("linear", "fast_weights"):
            yield (
                f"{self.positions} positions act on the scores of queries and keys, but "
                f"model.self_attention={self.self_attention} computes no scores: set "
                "model.positions=sinusoidal, learned or none"
            )
        if self.self_attention == "fixed" and self.summary > self.stride:
            yield (
                f"a block of {counted(self.stride, 'key')} cannot have {self.summary} of them as "
                "its summary (model.stride, model.summary)"
            )
        if self.flex_attention:
            for reason in self._not_in_flex_attention():
                yield f"model.flex_attention = true, but {reason}: set it to false"

    def _not_in_flex_attention(self) -> Iterator[str]:
        """Yield what that kernel cannot compute, or flash attention computes better."""
        if self.self_attention in ("linear", "fast_weights"):
            yield f"model.self_attention={self.self_attention} computes no scores"
        elif self.self_attention == "full" and self.positions not in ("relative", "alibi"):
            yield (
                f"model.self_attention=full with model.positions={self.positions} already uses "
                "flash attention"
            )
        if self.attention_dropout:
            yield (
                f"model.attention_dropout={self.attention_dropout} needs the attention weights, "
                "which it never computes"
            )
        if self.d_k < SMALLEST_FLEX_HEAD:
            yield (
                f"a head has {self.d_k} dimensions (model.d_model / model.num_heads), but it "
                f"needs {SMALLEST_FLEX_HEAD} or more"
            )

    @property
    def why_padded(self) -> str | None:
        """The reason why packed sentences, one flash kernel, cannot be computed; None: they can."""
        if self.self_attention != "full":
            return (
                f"model.self_attention={self.self_attention} is a pattern within a single sentence"
            )
        if self.positions in ("relative", "alibi"):
            return (
                f"model.positions={self.positions} changes the scores, which flash attention does "
                "not expose"
            )
        if self.attention_dropout:
            return (
                f"model.attention_dropout={self.attention_dropout}, which its flash kernel does "
                "not support"
            )
        if self.d_k % 8 or self.d_k > 256:
            return (
                f"a head has {self.d_k} dimensions (model.d_model / model.num_heads), but flash "
                "attention takes multiples of 8 up to 256"
            )
        if self.value_size != self.d_k:
            return (
                f"model.d_v={self.value_size}, but flash attention needs values of the same size "
                f"as keys, {self.d_k}"
            )
        return None


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,  # Ba et al. 2016
    "rms": nn.RMSNorm,  # Zhang & Sennrich 2019
}
# kinds of self-attention, and the options that each takes
PATTERNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "full": ("translate.attention.multi_head:FullAttention", ()),
    "sliding_window": ("translate.extras.patterns:SlidingWindowAttention", ("window",)),
    "strided": ("translate.extras.patterns:StridedAttention", ("stride",)),
    "fixed": ("translate.extras.patterns:FixedAttention", ("stride", "summary")),
    "linear": ("translate.extras.patterns:LinearAttention", ()),
    "fast_weights": ("translate.extras.patterns:FastWeightAttention", ()),
}
FLEX = "translate.extras.flex:with_flex"


def new_norm(config: TransformerConfig) -> nn.Module:
    """Make a norm of the model's kind and size."""
    return NORMS[config.normalization](config.d_model)


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (eq. 2).

    SwiGLU multiplies by a gate that a third matrix makes (Shazeer 2020).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = config.activation
        gated = self.activation == "swiglu"
        self.inner = Linear(config.d_model, 2 * config.d_ff if gated else config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.feed_forward_dropout)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        inner = self.inner(x)
        if self.activation == "swiglu":
            gate, value = inner.chunk(2, dim=-1)
            inner = F.silu(gate) * value
        else:
            inner = F.relu(inner) if self.activation == "relu" else F.gelu(inner)
        outer: Tensor = self.outer(self.dropout(inner))
        return outer


class Residual(nn.Module):
    """x + Dropout(Sublayer(x)) with its norm before (Xiong et al. 2020) or after (section 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm, self.before = new_norm(config), config.norm == "pre"
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "*rows D"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*rows D"]:
        """The whole connection, of a sublayer that gives nothing but what is added."""
        return self.leave(x, sublayer(self.enter(x)))

    def enter(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Make the input of the sublayer."""
        entered: Tensor = self.norm(x) if self.before else x
        return entered

    def leave(
        self, x: Float[Tensor, "*rows D"], sublayer: Float[Tensor, "*rows D"]
    ) -> Float[Tensor, "*rows D"]:
        """Make the input of the next layer."""
        left: Tensor = x + self.dropout(sublayer)
        if not self.before:
            left = self.norm(left)
        return left


def self_attention(
    config: TransformerConfig, *, causal: bool, rotary: Waves | None
) -> SelfAttention:
    """Make the self-attention of a layer; `rotary` is that of all layers."""
    relation = new_relation(
        config.positions,
        d_k=config.d_k,
        num_heads=config.num_heads,
        max_distance=config.max_distance,
    )
    name, options = PATTERNS[config.self_attention]
    sizes = {option: getattr(config, option) for option in options}
    pattern = on_demand(name)(causal=causal, relation=relation, **sizes)
    if config.flex_attention:
        pattern = on_demand(FLEX)(pattern)
    return SelfAttention(
        d_model=config.d_model, num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
        pattern=pattern, dropout=config.attention_dropout, rotary=rotary,
    )  # fmt: skip


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (figure 1, left)."""

    def __init__(self, config: TransformerConfig, rotary: Waves | None) -> None:
        super().__init__()
        self.self_attention = self_attention(config, causal=False, rotary=rotary)
        self.feed_forward = FeedForward(config)
        self.residuals: Stack[Residual] = Stack(Residual(config) for _ in range(2))
        self.layer_drop = LayerDrop(config.layer_drop)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        *,
        packing: Packing | None = None,
    ) -> Float[Tensor, "B S D"]:
        first, second = self.residuals
        attended = first(x, partial(self.self_attention, mask=mask, packing=packing))
        left = second(attended, self.feed_forward)
        return self.layer_drop(x, left)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the source, then feed-forward (figure 1, right)."""

    def __init__(self, config: TransformerConfig, rotary: Waves | None) -> None:
        super().__init__()
        self.self_attention = self_attention(config, causal=True, rotary=rotary)
        self.cross_attention = CrossAttention(
            d_model=config.d_model, memory_size=config.d_model, d_v=config.value_size,
            num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
            dropout=config.attention_dropout,
        )  # fmt: skip
        self.feed_forward = FeedForward(config)
        self.residuals: Stack[Residual] = Stack(Residual(config) for _ in range(3))
        self.layer_drop = LayerDrop(config.layer_drop)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeysValues,
        padding: Float[Tensor, "B 1 1 S"] | None = None,
        *,
        sentences: SameSentence | None = None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        """Read whole targets: padding comes last, so the causal mask already hides it.

        `sentences` says what is of one sentence, where sentences lie end to end.
        """
        first, second, third = self.residuals
        packing = None if sentences is None else sentences.queries
        h = first(x, partial(self.self_attention, packing=packing))
        context, weights = self.cross_attention(
            second.enter(h), memory, padding=padding, sentences=sentences, need_weights=need_weights
        )
        h = third(second.leave(h, context), self.feed_forward)
        return self.layer_drop(x, h), weights

    def step(
        self,
        x: Float[Tensor, "R D"],
        cache: Cache,
        ancestry: Ancestry,
        memory: KeysValues,
        padding: Float[Tensor, "B 1 1 S"] | None,
        places: Places,
        *,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "B H n S"] | None]:
        """`forward` of one token of the hypotheses in these places."""
        first, second, third = self.residuals
        h = first.leave(x, self.self_attention.step(first.enter(x), cache, ancestry, places))
        context, weights = self.cross_attention.step(
            second.enter(h), memory, places, padding=padding, need_weights=need_weights
        )
        return third(second.leave(h, context), self.feed_forward), weights
