"""The Transformer (Vaswani et al. 2017): attention alone, no recurrence.

Its options, its layers, and the model. Equations and sections without a name are of that paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, Kept, KeysValues, Places
from translate.attention.masks import added_to_scores, over_keys
from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.attention.packed import Packing, SameSentence
from translate.attention.positions import Positions, Waves, new_positions, new_relation
from translate.config import OnlyWith
from translate.linear import Linear
from translate.models.seq2seq import (
    TIED,
    Decoded,
    Dropout,
    LayerDrop,
    Layers,
    Memory,
    ModelConfig,
    Rate,
    Seq2Seq,
    Size,
    Stack,
    Step,
    Tied,
    rows_of,
    tie,
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
    """Make the self-attention of a layer; all layers share the angles of `rotary`."""
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
        """Embeddings times √D (section 3.4) and positions, under dropout."""
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
