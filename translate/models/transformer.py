"""The Transformer (Vaswani et al. 2017): attention alone, no recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from translate.attention.ancestry import Ancestry
from translate.attention.linear import FastWeightAttention, LinearAttention
from translate.attention.masks import added_to_scores, over_keys
from translate.attention.patterns import (
    FixedAttention,
    FullAttention,
    Pattern,
    StridedAttention,
    with_flex,
)
from translate.attention.places import Places
from translate.attention.positions import Positions, Waves, new_positions, new_relation
from translate.attention.sliding_window import SlidingWindowAttention
from translate.attention.variable_length import Packing, SameSentence
from translate.linear import Linear
from translate.models.dropout import Dropout, Rate
from translate.models.embeddings import Tied, tie, tying_problems
from translate.models.seq2seq import Decoded, Memory, Seq2Seq, Step
from translate.models.stack import Stack
from translate.models.transformer_kernels import why_no_flex_attention, why_padded
from translate.models.transformer_layers import DecoderLayer, EncoderLayer, LayerOptions
from translate.models.transformer_state import TransformerState
from translate.wording import counted

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,  # Ba et al. 2016
    "rms": nn.RMSNorm,  # Zhang & Sennrich 2019
}


class Transformer(Seq2Seq):
    """An encoder and a decoder of attention layers."""

    parallel = True
    since: ClassVar = {"d_v": None, "flex_attention": False, "layer_drop": 0.0}

    def __init__(
        self,
        *,
        source_vocab_size: int,
        target_vocab_size: int,
        d_model: PositiveInt,
        num_heads: PositiveInt,
        num_kv_heads: PositiveInt,
        d_v: PositiveInt | None,
        encoder_layers: PositiveInt,
        decoder_layers: PositiveInt,
        d_ff: PositiveInt,
        activation: Literal["relu", "gelu", "swiglu"],
        norm: Literal["pre", "post"],
        normalization: Literal["layer", "rms"],
        positions: Literal["none", "sinusoidal", "learned", "relative", "rotary", "alibi"],
        max_positions: PositiveInt,
        max_distance: PositiveInt,
        self_attention: Literal[
            "full", "sliding_window", "strided", "fixed", "linear", "fast_weights"
        ],
        window: PositiveInt,
        stride: PositiveInt,
        summary: PositiveInt,
        tied_embeddings: Tied,
        dropout: Rate,
        attention_dropout: Rate,
        feed_forward_dropout: Rate,
        layer_drop: Rate,
        flex_attention: bool,
    ) -> None:
        super().__init__(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        self.d_model = d_model
        self.source_embedding = nn.Embedding(source_vocab_size, d_model)
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.output = Linear(d_model, target_vocab_size, bias=False)

        self.source_positions, self.target_positions = (
            new_positions(positions, d_model=d_model, max_positions=max_positions) for _ in range(2)
        )
        self.max_length = self.target_positions.max_length
        d_k = d_model // num_heads
        d_v = d_v or d_k
        patterns: dict[str, Callable[..., Any]] = {
            "full": FullAttention,
            "sliding_window": partial(SlidingWindowAttention, window=window),
            "strided": partial(StridedAttention, stride=stride),
            "fixed": partial(FixedAttention, stride=stride, summary=summary),
            "linear": LinearAttention,
            "fast_weights": FastWeightAttention,
        }

        def new_pattern(causal: bool) -> Pattern:
            relation = new_relation(
                positions, d_k=d_k, num_heads=num_heads, max_distance=max_distance
            )
            pattern = patterns[self_attention](causal=causal, relation=relation)
            return with_flex(pattern) if flex_attention else pattern

        new_norm = partial(NORMS[normalization], d_model)
        options = LayerOptions(
            d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, d_v=d_v, d_ff=d_ff,
            activation=activation, new_norm=new_norm, norm_before=norm == "pre",
            new_pattern=new_pattern,
            rotary=Waves(d_model=d_k) if positions == "rotary" else None,
            dropout=dropout, attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout, layer_drop=layer_drop,
        )  # fmt: skip
        self.dropout = Dropout(dropout)
        self.encoder_layers: Stack[EncoderLayer] = Stack(
            EncoderLayer(options) for _ in range(encoder_layers)
        )
        self.decoder_layers: Stack[DecoderLayer] = Stack(
            DecoderLayer(options) for _ in range(decoder_layers)
        )
        # pre-norm layers add up unnormalised, so one norm closes each stack
        self.encoder_norm = new_norm() if norm == "pre" else nn.Identity()
        self.decoder_norm = new_norm() if norm == "pre" else nn.Identity()
        if self_attention == "sliding_window":
            self.why_no_graph = (
                "model.self_attention=sliding_window reads long sources in blocks and keeps the "
                "last words in a ring buffer, with branches that a graph cannot express"
            )
        self.why_padded = why_padded(self_attention, positions, attention_dropout, d_k, d_v)
        self._initialise()
        tie(self, tied_embeddings)

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
                f"rotary positions rotate pairs of dimensions, but a head has {d_model // heads} "
                "dimensions (model.positions, model.d_model, model.num_heads): make d_model / "
                "num_heads even"
            )
        if heads % groups:
            found.append(
                f"{heads} heads cannot share {groups} key/value heads evenly "
                "(model.num_heads, model.num_kv_heads)"
            )
        if options["self_attention"] in ("linear", "fast_weights") and options["positions"] in (
            "relative", "rotary", "alibi",
        ):  # fmt: skip
            found.append(
                f"{options['positions']} positions act on the scores of queries and keys, but "
                f"model.self_attention={options['self_attention']} computes no scores: set "
                "model.positions=sinusoidal, learned or none"
            )
        if options["self_attention"] == "fixed" and options["summary"] > options["stride"]:
            found.append(
                f"a block of {counted(options['stride'], 'key')} cannot have {options['summary']} "
                "of them as its summary (model.stride, model.summary)"
            )
        if options["flex_attention"]:
            found += why_no_flex_attention(options)
        return found + tying_problems(options)

    def _initialise(self) -> None:
        """Xavier for matrices, W_Q W_K W_V as one (Glorot & Bengio 2010); embeddings N(0, 1/D)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.d_model**-0.5)

    def _embed(
        self,
        embedding: nn.Embedding,
        tokens: Int[Tensor, "*rows"],
        add_positions: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "*rows D"]:
        """Embeddings times √D (Vaswani et al. 2017, section 3.4) and positions, under dropout."""
        embedded = embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(add_positions(embedded))  # type: ignore[no-any-return]

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        x = self._embed(self.source_embedding, source, self.source_positions)
        mask = over_keys(source_mask)
        for layer in self.encoder_layers:
            x = self.through(layer, x, mask)
        return Memory(self.encoder_norm(x), source_mask)

    def decode(
        self, target_in: Int[Tensor, "B T"], memory: Memory, *, need_alignment: bool = False
    ) -> Decoded:
        x = self._embed(self.target_embedding, target_in, self.target_positions)
        padding = added_to_scores(over_keys(memory.mask), memory.states.dtype)
        alignment = []
        for layer in self.decoder_layers:
            keys_values = layer.cross_attention.keys_values(memory.states)
            attend = partial(layer, need_weights=need_alignment)
            x, weights = self.through(attend, x, keys_values, padding)
            if weights is not None:
                alignment.append(weights)
        hidden = self.decoder_norm(x)
        return Decoded(hidden, torch.stack(alignment, dim=1) if need_alignment else None)

    def read_packed(
        self,
        source: Int[Tensor, "P"],
        target_in: Int[Tensor, "M"],
        sources: Packing,
        targets: Packing,
    ) -> Float[Tensor, "M D"]:
        """All sentences in one row; attention alone knows where they begin."""
        add_positions = partial(_end_to_end, self.source_positions, sources)
        x = self._embed(self.source_embedding, source, add_positions)[None]
        for encoder_layer in self.encoder_layers:
            x = self.through(partial(encoder_layer, packing=sources), x)
        states = self.encoder_norm(x)
        add_positions = partial(_end_to_end, self.target_positions, targets)
        x = self._embed(self.target_embedding, target_in, add_positions)[None]
        sentences = SameSentence(targets, sources)
        for layer in self.decoder_layers:
            keys_values = layer.cross_attention.keys_values(states)
            attend = partial(layer, sentences=sentences, need_weights=False)
            x, _ = self.through(attend, x, keys_values)
        hidden: Tensor = self.decoder_norm(x)[0]
        return hidden

    def start(self, memory: Memory) -> TransformerState:
        keys_values = [
            layer.cross_attention.keys_values(memory.states).contiguous()
            for layer in self.decoder_layers
        ]
        sentences = memory.mask.shape[0]
        caches = [
            layer.self_attention.empty_cache(sentences, like=kv.keys)
            for layer, kv in zip(self.decoder_layers, keys_values, strict=True)
        ]
        padding = None
        # read from the device once a batch, and kernels run without mask
        if torch.compiler.is_exporting() or not memory.mask.all():
            padding = added_to_scores(over_keys(memory.mask), keys_values[0].keys.dtype)
        return TransformerState(keys_values, padding, caches, Ancestry(0), beam=1)

    def decode_step(
        self,
        tokens: Int[Tensor, "R"],
        state: TransformerState,  # type: ignore[override]  # each family steps its own state
        *,
        live: Int[Tensor, "R"] | None = None,
        need_alignment: bool = False,
    ) -> Step:
        places = Places.of(state.sentences, state.beam, live)
        add_positions = partial(self.target_positions, start=state.ancestry.length)
        x = self._embed(self.target_embedding, tokens[:, None], add_positions)[:, 0]
        ancestry = state.ancestry.grown(state.sentences, state.beam, like=x)
        alignment = []
        per_layer = zip(self.decoder_layers, state.caches, state.memory, strict=True)
        for layer, cache, memory in per_layer:
            x, weights = layer.step(
                x, cache, ancestry, memory, state.padding, places, need_weights=need_alignment
            )
            if weights is not None:
                alignment.append(weights)
        hidden, after = self.decoder_norm(x), replace(state, ancestry=ancestry)
        if not need_alignment:
            return Step(hidden, after, None)
        stacked = torch.stack(alignment, dim=1)  # (B, L, H, n, S)
        by_hypothesis = stacked.permute(0, 3, 1, 2, 4).flatten(0, 1)  # (N, L, H, S)
        return Step(hidden, after, by_hypothesis)


def _end_to_end(
    positions: Positions, packing: Packing, embedded: Float[Tensor, "M D"]
) -> Float[Tensor, "M D"]:
    """Each word with its position in its own sentence, where sentences lie end to end."""
    nothing = embedded.new_zeros(1, packing.longest, embedded.shape[1])
    return embedded + positions(nothing)[0, packing.positions]  # type: ignore[no-any-return]
