"""The layers of a Transformer: attention and feed-forward, each in a residual connection.

Equations and sections without a name are of Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, KeysValues, Places
from translate.attention.linear import FastWeightAttention, LinearAttention
from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.attention.patterns import (
    FixedAttention,
    FullAttention,
    StridedAttention,
    with_flex,
)
from translate.attention.positions import Waves, new_relation
from translate.attention.sliding_window import SlidingWindowAttention
from translate.attention.variable_length import Packing, SameSentence
from translate.linear import Linear
from translate.models.dropout import Dropout, LayerDrop
from translate.models.stack import Stack
from translate.models.transformer_config import TransformerConfig

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,  # Ba et al. 2016
    "rms": nn.RMSNorm,  # Zhang & Sennrich 2019
}
# what makes a self-attention between the projections, of `causal` and `relation`
PATTERNS: dict[str, Callable[[TransformerConfig], Callable[..., Any]]] = {
    "full": lambda config: FullAttention,
    "sliding_window": lambda config: partial(SlidingWindowAttention, window=config.window),
    "strided": lambda config: partial(StridedAttention, stride=config.stride),
    "fixed": lambda config: partial(FixedAttention, stride=config.stride, summary=config.summary),
    "linear": lambda config: LinearAttention,
    "fast_weights": lambda config: FastWeightAttention,
}


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
        """What the sublayer reads."""
        entered: Tensor = self.norm(x) if self.before else x
        return entered

    def leave(
        self, x: Float[Tensor, "*rows D"], sublayer: Float[Tensor, "*rows D"]
    ) -> Float[Tensor, "*rows D"]:
        """What the next layer reads."""
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
    pattern = PATTERNS[config.self_attention](config)(causal=causal, relation=relation)
    return SelfAttention(
        d_model=config.d_model, num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
        pattern=with_flex(pattern) if config.flex_attention else pattern,
        dropout=config.attention_dropout, rotary=rotary,
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
