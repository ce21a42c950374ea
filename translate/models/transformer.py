"""The Transformer (Vaswani et al. 2017): attention alone, no recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, Kept, KeysValues, Places
from translate.attention.masks import added_to_scores, over_keys
from translate.attention.packed import Packing, SameSentence
from translate.attention.positions import Positions, Waves, new_positions
from translate.linear import Linear
from translate.models.seq2seq import Decoded, Dropout, Memory, Seq2Seq, Stack, Step, rows_of, tie
from translate.models.transformer_layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerConfig,
    new_norm,
)


@dataclass(frozen=True)
class TransformerState:
    """The source as every decoder layer sees it, and what each has cached of the target."""

    memory: list[KeysValues]
    padding: Float[Tensor, "B 1 1 S"] | None  # of the source, added to scores; None: there is none
    caches: list[Cache]
    ancestry: Ancestry
    beam: int  # hypotheses a sentence

    @property
    def sentences(self) -> int:
        return self.memory[0].keys.shape[0]

    def select(self, hypotheses: Int[Tensor, "M"]) -> TransformerState:
        return replace(
            self,
            caches=[cache.select(hypotheses) for cache in self.caches],
            ancestry=self.ancestry.select(hypotheses),
            beam=len(hypotheses) // self.sentences,
        )

    def keep(self, sentences: Int[Tensor, "C"]) -> TransformerState:
        ancestry, columns = self.ancestry.keep(sentences)
        kept = Kept(sentences, rows_of(sentences, self.beam), columns)
        return replace(
            self,
            memory=[memory.at(sentences) for memory in self.memory],
            padding=None if self.padding is None else self.padding.index_select(0, sentences),
            caches=[cache.keep(kept) for cache in self.caches],
            ancestry=ancestry,
        )


class Transformer(Seq2Seq):
    """An encoder and a decoder of attention layers."""

    Config: ClassVar = TransformerConfig
    parallel = True

    def __init__(
        self, config: TransformerConfig, *, source_vocab_size: int, target_vocab_size: int
    ) -> None:
        super().__init__(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        self.d_model = config.d_model
        self.source_embedding = nn.Embedding(source_vocab_size, config.d_model)
        self.target_embedding = nn.Embedding(target_vocab_size, config.d_model)
        self.output = Linear(config.d_model, target_vocab_size, bias=False)

        self.source_positions, self.target_positions = (
            new_positions(
                config.positions, d_model=config.d_model, max_positions=config.max_positions
            )
            for _ in range(2)
        )
        self.max_length = self.target_positions.max_length
        rotary = Waves(d_model=config.d_k) if config.positions == "rotary" else None
        self.dropout = Dropout(config.dropout)
        self.encoder_layers: Stack[EncoderLayer] = Stack(
            EncoderLayer(config, rotary) for _ in range(config.encoder_layers)
        )
        self.decoder_layers: Stack[DecoderLayer] = Stack(
            DecoderLayer(config, rotary) for _ in range(config.decoder_layers)
        )
        # pre-norm layers add up unnormalised, so one norm closes each stack
        self.encoder_norm, self.decoder_norm = (
            new_norm(config) if config.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.why_padded = config.why_padded
        self._initialise()
        tie(self, config.tied_embeddings)

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
