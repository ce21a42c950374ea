"""The Transformer (Vaswani et al. 2017): attention alone, no recurrence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from translate.attention.masks import over_keys
from translate.attention.multi_head import (
    CrossAttention,
    KeysValues,
    KeyValueCache,
    SelfAttention,
)
from translate.attention.positions import LearnedPositions, NoPositions, SinusoidalPositions
from translate.models.dropout import Dropout, Rate
from translate.models.embeddings import Tied, tie, tying_problems
from translate.models.seq2seq import Decoded, Memory, Seq2Seq, Step, rows_of
from translate.models.stack import Stack


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (eq. 2).

    SwiGLU multiplies by a gate that a third matrix makes (Shazeer 2020).
    """

    def __init__(self, *, d_model: int, d_ff: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.outer = nn.Linear(d_ff, d_model)
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
    """x + Dropout(Sublayer(x)) with its norm before (Xiong et al. 2020) or after (the paper)."""

    def __init__(self, *, d_model: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.before = norm == "pre"
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

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
    d_ff: int
    activation: str
    norm: str
    rotary: bool
    dropout: float
    attention_dropout: float
    feed_forward_dropout: float

    def residual(self) -> Residual:
        return Residual(d_model=self.d_model, norm=self.norm, dropout=self.dropout)

    def feed_forward(self) -> FeedForward:
        return FeedForward(
            d_model=self.d_model, d_ff=self.d_ff,
            activation=self.activation, dropout=self.feed_forward_dropout,
        )  # fmt: skip

    def self_attention(self) -> SelfAttention:
        return SelfAttention(
            d_model=self.d_model, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
            dropout=self.attention_dropout, rotary=self.rotary,
        )  # fmt: skip

    def cross_attention(self) -> CrossAttention:
        return CrossAttention(
            d_model=self.d_model, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
            dropout=self.attention_dropout,
        )  # fmt: skip


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (figure 1, left)."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.self_attention = options.self_attention()
        self.feed_forward = options.feed_forward()
        self.residuals: Stack[Residual] = Stack(options.residual() for _ in range(2))

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "B S D"]:
        attention, feed_forward = self.residuals
        x = attention.leave(x, self.self_attention(attention.enter(x), mask=mask))
        return feed_forward.leave(x, self.feed_forward(feed_forward.enter(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the source, then feed-forward (figure 1, right)."""

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.self_attention = options.self_attention()
        self.cross_attention = options.cross_attention()
        self.feed_forward = options.feed_forward()
        self.residuals: Stack[Residual] = Stack(options.residual() for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeysValues,
        mask: Bool[Tensor, "B 1 1 S"],
        *,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        """Whole targets: padding comes last, so the causal mask already hides it."""
        first, *_ = self.residuals
        x = first.leave(x, self.self_attention(first.enter(x), causal=True))
        return self._after_self_attention(x, memory, mask, need_weights)

    def step(
        self,
        x: Float[Tensor, "N D"],
        cache: KeyValueCache,
        length: int,
        memory: KeysValues,
        mask: Bool[Tensor, "B 1 1 S"],
        *,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "B H n S"] | None]:
        """One token of every hypothesis, after `length` others."""
        first, *_ = self.residuals
        attended = self.self_attention.step(first.enter(x)[:, None], cache, length)[:, 0]
        x = first.leave(x, attended)
        # (N, D) → (B, n, D): the hypotheses of a sentence are queries against one memory
        beams = x.view(mask.shape[0], -1, x.shape[-1])
        beams, weights = self._after_self_attention(beams, memory, mask, need_weights)
        return beams.flatten(0, 1), weights

    def _after_self_attention(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeysValues,
        mask: Bool[Tensor, "B 1 1 S"],
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        _, cross, feed_forward = self.residuals
        attended, weights = self.cross_attention(
            cross.enter(x), memory, mask=mask, need_weights=need_weights
        )
        x = cross.leave(x, attended)
        return feed_forward.leave(x, self.feed_forward(feed_forward.enter(x))), weights


@dataclass(frozen=True)
class TransformerState:
    """The caches of every decoder layer, and how many tokens they hold."""

    memory: list[KeysValues]
    mask: Bool[Tensor, "B 1 1 S"]
    caches: list[KeyValueCache]
    length: int

    def select(self, hypotheses: Int[Tensor, "M"]) -> TransformerState:
        caches = [cache.at(hypotheses) for cache in self.caches]
        return TransformerState(self.memory, self.mask, caches, self.length)

    def keep(self, sentences: Int[Tensor, "C"]) -> TransformerState:
        beam = self.caches[0].keys.shape[0] // self.mask.shape[0]
        rows = rows_of(sentences, beam)
        return TransformerState(
            [memory.at(sentences) for memory in self.memory],
            self.mask.index_select(0, sentences),
            [cache.at(rows) for cache in self.caches],
            self.length,
        )


class Transformer(Seq2Seq):
    """An encoder and a decoder of attention layers."""

    def __init__(
        self,
        *,
        source_vocab_size: int,
        target_vocab_size: int,
        d_model: PositiveInt,
        num_heads: PositiveInt,
        num_kv_heads: PositiveInt,
        encoder_layers: PositiveInt,
        decoder_layers: PositiveInt,
        d_ff: PositiveInt,
        activation: Literal["relu", "gelu", "swiglu"],
        norm: Literal["pre", "post"],
        positions: Literal["none", "sinusoidal", "learned", "rotary"],
        max_positions: PositiveInt,
        tied_embeddings: Tied,
        dropout: Rate,
        attention_dropout: Rate,
        feed_forward_dropout: Rate,
    ) -> None:
        super().__init__(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        self.d_model = d_model
        self.source_embedding = nn.Embedding(source_vocab_size, d_model)
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False)

        def position_layer() -> nn.Module:
            if positions == "learned":
                return LearnedPositions(d_model=d_model, max_positions=max_positions)
            return SinusoidalPositions() if positions == "sinusoidal" else NoPositions()

        self.source_positions, self.target_positions = position_layer(), position_layer()
        options = LayerOptions(
            d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, d_ff=d_ff,
            activation=activation, norm=norm, rotary=positions == "rotary", dropout=dropout,
            attention_dropout=attention_dropout, feed_forward_dropout=feed_forward_dropout,
        )  # fmt: skip
        self.dropout = Dropout(dropout)
        self.encoder_layers: Stack[EncoderLayer] = Stack(
            EncoderLayer(options) for _ in range(encoder_layers)
        )
        self.decoder_layers: Stack[DecoderLayer] = Stack(
            DecoderLayer(options) for _ in range(decoder_layers)
        )
        # pre-norm layers add up unnormalised, so one norm closes each stack
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self._initialise()
        tie(
            tied_embeddings, source=self.source_embedding, target=self.target_embedding,
            output=self.output,
        )  # fmt: skip

    @classmethod
    def problems(cls, options: Mapping[str, Any]) -> list[str]:
        d_model, heads, groups = (options[k] for k in ("d_model", "num_heads", "num_kv_heads"))
        found = []
        if d_model % heads:
            found.append(
                f"d_model {d_model} is not divisible by {heads} heads "
                "(model.d_model, model.num_heads)"
            )
        elif options["positions"] == "rotary" and (d_model // heads) % 2:
            found.append(
                f"rotary positions turn pairs, but a head has {d_model // heads} dimensions "
                "(model.positions, model.d_model, model.num_heads): make d_model / num_heads even"
            )
        if heads % groups:
            found.append(
                f"{heads} heads cannot share {groups} key/value heads evenly "
                "(model.num_heads, model.num_kv_heads)"
            )
        return found + tying_problems(options)

    def _initialise(self) -> None:
        """Xavier for matrices (Glorot & Bengio 2010); embeddings N(0, 1/D)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.d_model**-0.5)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        x = self.source_positions(self.source_embedding(source) * math.sqrt(self.d_model))
        x = self.dropout(x)
        mask = over_keys(source_mask)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), source_mask)

    def decode(
        self,
        target_in: Int[Tensor, "B T"],
        target_mask: Bool[Tensor, "B T"],
        memory: Memory,
        *,
        need_alignment: bool = False,
    ) -> Decoded:
        x = self.target_positions(self.target_embedding(target_in) * math.sqrt(self.d_model))
        x = self.dropout(x)
        mask = over_keys(memory.mask)
        alignment = []
        for layer in self.decoder_layers:
            keys_values = layer.cross_attention.keys_values(memory.states)
            x, weights = layer(x, keys_values, mask, need_weights=need_alignment)
            alignment += [weights] if weights is not None else []
        hidden = self.decoder_norm(x)
        return Decoded(hidden, torch.stack(alignment, dim=1) if alignment else None)

    def start(self, memory: Memory) -> TransformerState:
        cross = [layer.cross_attention for layer in self.decoder_layers]
        keys_values = [attention.keys_values(memory.states) for attention in cross]
        caches = [
            KeyValueCache.empty(len(memory.mask), attention.num_kv_heads, attention.d_k, kv.keys)
            for attention, kv in zip(cross, keys_values, strict=True)
        ]
        return TransformerState(keys_values, over_keys(memory.mask), caches, length=0)

    def decode_step(
        self,
        tokens: Int[Tensor, "N"],
        state: TransformerState,  # type: ignore[override]  # each family steps its own state
        *,
        need_alignment: bool = False,
    ) -> Step:
        x = self.target_embedding(tokens) * math.sqrt(self.d_model)
        x = self.dropout(self.target_positions(x[:, None], start=state.length)[:, 0])
        alignment = []
        per_layer = zip(self.decoder_layers, state.caches, state.memory, strict=True)
        for layer, cache, memory in per_layer:
            x, weights = layer.step(
                x, cache, state.length, memory, state.mask, need_weights=need_alignment
            )
            alignment += [weights] if weights is not None else []
        after = TransformerState(state.memory, state.mask, state.caches, state.length + 1)
        if not alignment:
            return Step(self.decoder_norm(x), after, None)
        stacked = torch.stack(alignment, dim=1)  # (B, L, H, n, S)
        by_hypothesis = stacked.permute(0, 3, 1, 2, 4).flatten(0, 1)  # (N, L, H, S)
        return Step(self.decoder_norm(x), after, by_hypothesis)
