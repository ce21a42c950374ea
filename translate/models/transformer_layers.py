"""The layers of a Transformer: attention and feed-forward, each in a residual connection.

Equations and sections without a name are of Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from translate.attention.ancestry import Ancestry
from translate.attention.caches import Cache, KeysValues
from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.attention.patterns import Pattern
from translate.attention.places import Places
from translate.attention.positions import Waves
from translate.attention.variable_length import Packing, SameSentence
from translate.linear import Linear
from translate.models.dropout import Dropout, LayerDrop
from translate.models.stack import Stack


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (eq. 2).

    SwiGLU multiplies by a gate that a third matrix makes (Shazeer 2020).
    """

    def __init__(self, *, d_model: int, d_ff: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.inner = Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

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

    def __init__(self, *, norm: nn.Module, before: bool, dropout: float) -> None:
        super().__init__()
        self.norm, self.before = norm, before
        self.dropout = Dropout(dropout)

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


@dataclass(frozen=True)
class LayerOptions:
    """What every layer of a Transformer is made with."""

    d_model: int
    num_heads: int
    num_kv_heads: int
    d_v: int  # of the attention over the source
    d_ff: int
    activation: str
    new_norm: Callable[[], nn.Module]
    norm_before: bool
    new_pattern: Callable[[bool], Pattern]  # causal → what a self-attention computes
    rotary: Waves | None  # of a head, for all layers
    dropout: float
    attention_dropout: float
    feed_forward_dropout: float
    layer_drop: float

    def residual(self) -> Residual:
        return Residual(norm=self.new_norm(), before=self.norm_before, dropout=self.dropout)

    def feed_forward(self) -> FeedForward:
        return FeedForward(
            d_model=self.d_model, d_ff=self.d_ff,
            activation=self.activation, dropout=self.feed_forward_dropout,
        )  # fmt: skip

    def self_attention(self, *, causal: bool) -> SelfAttention:
        return SelfAttention(
            d_model=self.d_model, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
            pattern=self.new_pattern(causal),
            dropout=self.attention_dropout, rotary=self.rotary,
        )  # fmt: skip

    def cross_attention(self) -> CrossAttention:
        return CrossAttention(
            d_model=self.d_model, memory_size=self.d_model, d_v=self.d_v,
            num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
            dropout=self.attention_dropout,
        )  # fmt: skip


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (figure 1, left)."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.self_attention = options.self_attention(causal=False)
        self.feed_forward = options.feed_forward()
        self.residuals: Stack[Residual] = Stack(options.residual() for _ in range(2))
        self.layer_drop = LayerDrop(options.layer_drop)

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

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.self_attention = options.self_attention(causal=True)
        self.cross_attention = options.cross_attention()
        self.feed_forward = options.feed_forward()
        self.residuals: Stack[Residual] = Stack(options.residual() for _ in range(3))
        self.layer_drop = LayerDrop(options.layer_drop)

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
