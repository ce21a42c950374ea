"""Which keys a self-attention meets, and how that is computed: all of them, or a sparse pattern."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, KeysValues, KeyValueCache
from translate.attention.flex import FlexAttention
from translate.attention.masks import added_to_scores, both, fixed_mask, strided_mask, summed
from translate.attention.positions import Relation
from translate.attention.scaled_dot_product import fused_attention, step_attention
from translate.attention.variable_length import Packing, SameSentence


class Pattern(nn.Module, ABC):
    """A kind of self-attention between the projections: heads in, heads out."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B H T Kv"]:
        """Attention within whole sequences; `mask` says what is not padding."""

    def packed(
        self, query: Float[Tensor, "1 H M K"], memory: KeysValues, packing: Packing
    ) -> Float[Tensor, "1 H M Kv"]:
        """Attention within each of the sentences that lie end to end.

        Raises:
            TypeError: this kind cannot; `why_padded` tells before it comes to that.
        """
        raise TypeError(f"{type(self).__name__} only reads padded batches")

    def weights(
        self,
        query: Float[Tensor, "B H T K"],
        keys: Float[Tensor, "B G T K"],
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """What each query gives each key, of any kind of attention: `forward` of one-hot values.

        Heads are sums of values under their weights. Where value j is all zeros but for a one in
        place j, the sum is the row of weights itself.
        """
        rows, groups, length, _ = keys.shape
        one_hot = torch.eye(length, dtype=keys.dtype, device=keys.device)
        values = one_hot.expand(rows, groups, length, length)
        return self.forward(query, KeysValues(keys, values), mask=mask)

    @abstractmethod
    def empty_cache(self, sentences: int, heads: int, d_k: int, like: Tensor) -> Cache:
        """The memory before the first token, for causal patterns."""

    @abstractmethod
    def step(
        self, query: Float[Tensor, "B H n K"], new: KeysValues, cache: Cache, ancestry: Ancestry
    ) -> Float[Tensor, "B H n Kv"]:
        """Read one more token of a sentence's n hypotheses: the last row of `forward` for each."""


class FullAttention(Pattern):
    """Every query meets every key that `visible` shows it; here, all."""

    sees_all = True  # False where `visible` hides something
    flex: FlexAttention | None = None  # a kernel of its own, for what it `serves`

    def __init__(self, *, causal: bool, relation: Relation | None = None) -> None:
        super().__init__(causal=causal)
        self.relation = relation

    def visible(
        self, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
    ) -> Bool[Tensor, "*pairs"] | None:
        """The pattern, as a mask between positions that broadcast: (T, 1) and (S), or of a pair."""
        return None

    def bias(
        self,
        query: Float[Tensor, "B H T K"],
        queries: Int[Tensor, "#T"],
        keys: Int[Tensor, "S"] | Int[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "#B H #T S"] | None:
        """What positions add to the scores, if they are told there."""
        return None if self.relation is None else self.relation(query, keys - queries[:, None])

    def forward(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B H T Kv"]:
        if self.flex is not None and self.flex.serves(query, training=self.training):
            return self.flex(query, memory, mask=mask)
        return self.fused(query, memory, mask=mask, dropout=dropout)

    def fused(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None,
        dropout: float,
    ) -> Float[Tensor, "B H T Kv"]:
        """By PyTorch's fused kernels, under a mask and a bias of N × N numbers if there are any."""
        positions = torch.arange(query.shape[2], device=query.device)
        return fused_attention(
            query, memory.keys, memory.values,
            mask=both(mask, self.visible(positions[:, None], positions)), causal=self.causal,
            bias=self.bias(query, positions, positions), dropout=dropout,
        )  # fmt: skip

    def packed(
        self, query: Float[Tensor, "1 H M K"], memory: KeysValues, packing: Packing
    ) -> Float[Tensor, "1 H M Kv"]:
        if self.relation is not None or not self.sees_all:  # flash knows neither
            return super().packed(query, memory, packing)
        return SameSentence(packing, packing).attention(query, memory, causal=self.causal)

    def empty_cache(self, sentences: int, heads: int, d_k: int, like: Tensor) -> Cache:
        return KeyValueCache.empty(sentences, heads, d_k, like)

    def step(
        self,
        query: Float[Tensor, "B H n K"],
        new: KeysValues,
        cache: KeyValueCache,  # type: ignore[override]  # each pattern steps its own cache
        ancestry: Ancestry,
    ) -> Float[Tensor, "B H n Kv"]:
        memory, added = cache.append(new), ancestry.bias  # whose past each column is
        if self.relation is not None or not self.sees_all:
            here, keys = ancestry.last(query.device), ancestry.positions(memory.keys)
            added = summed(self.bias(query, here, keys), added)
            if (visible := self.visible(here[:, None], keys)) is not None:
                added = summed(added_to_scores(visible, query.dtype), added)
        return step_attention(query, memory.keys, memory.values, bias=added)


def with_flex(pattern: FullAttention) -> FullAttention:
    """The pattern, whose training on CUDA is now one kernel (flex.py)."""
    pattern.flex = FlexAttention(pattern.visible, causal=pattern.causal, relation=pattern.relation)
    return pattern


class StridedAttention(FullAttention):
    """The neighbourhood and every l-th key (Child et al. 2019), for data with a period.

    Computed by the fused kernel under a mask of N × N booleans: the pattern, not its saving.
    """

    sees_all = False

    def __init__(self, *, causal: bool, relation: Relation | None = None, stride: int) -> None:
        super().__init__(causal=causal, relation=relation)
        self.stride = stride

    def visible(
        self, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
    ) -> Bool[Tensor, "*pairs"]:
        return strided_mask(queries, keys, stride=self.stride)


class FixedAttention(FullAttention):
    """The block of l keys and the last c of every block, as its summary (Child et al. 2019).

    Computed by the fused kernel under a mask of N × N booleans: the pattern, not its saving.
    """

    sees_all = False

    def __init__(
        self, *, causal: bool, relation: Relation | None = None, stride: int, summary: int
    ) -> None:
        super().__init__(causal=causal, relation=relation)
        self.stride, self.summary = stride, summary

    def visible(
        self, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
    ) -> Bool[Tensor, "*pairs"]:
        return fixed_mask(queries, keys, stride=self.stride, summary=self.summary)
