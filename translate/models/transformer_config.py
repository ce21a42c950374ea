"""The options of a Transformer, and what the flash and flex kernels do not compute of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from translate.config import OnlyWith
from translate.models.embeddings import TIED, Tied
from translate.models.seq2seq import Layers, ModelConfig, Rate, Size
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
        description="strided: every so-manieth key is seen; fixed: keys of a block"
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
        """What the attention of packed sentences, one flash kernel, cannot compute; None: all."""
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
