"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): over oneself, and over the source.

MultiHead(Q, K, V) = Concat(head_1 … head_H) W^O,  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

Fewer key/value heads than heads are shared evenly: grouped-query attention (Ainslie et al. 2023),
or with one of them multi-query attention (Shazeer 2019).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.cache import Ancestry, Cache, KeysValues, KeyValueCache, Number, Places
from translate.attention.dot_product import (
    fused_attention,
    readable_attention,
    step_attention,
)
from translate.attention.masks import added_to_scores, both, summed
from translate.attention.packed import Packing, SameSentence
from translate.attention.positions import Relation, Waves, rotate
from translate.linear import Linear


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
            TypeError: this kind cannot; `why_padded` is known before.
        """
        raise TypeError(f"{type(self).__name__} only reads padded batches")

    def weights(
        self,
        query: Float[Tensor, "B H T K"],
        keys: Float[Tensor, "B G T K"],
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
    ) -> Float[Tensor, "B H T T"]:
        """The weights of any kind of attention, each key's for each query: `forward` of one-hots.

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


class TrainingKernel(Protocol):
    """A kernel that computes a whole pattern in training (extras/flex.py)."""

    def serves(self, query: Tensor, *, training: bool) -> bool:
        """Tell whether it computes such a call."""

    def __call__(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None,
    ) -> Float[Tensor, "B H T Kv"]:
        """Compute `Pattern.forward`, without dropout."""


class FullAttention(Pattern):
    """Every query meets every key that `visible` shows it; here, all."""

    sees_all = True  # False where `visible` hides something
    flex: TrainingKernel | None = None  # for what it `serves`

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
        """The term that positions add to the scores, if they act there."""
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
        """Compute it by PyTorch's fused kernels; a mask and a bias have N × N numbers."""
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


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    """Cut the last dimension into heads."""
    return x.reshape(*x.shape[:-1], num_heads, -1).transpose(1, 2)


def join_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Concat(head_1 … head_H)."""
    return x.transpose(1, 2).flatten(-2)


class SelfAttention(nn.Module):
    """Queries, keys and values from the same sequence, in one fused projection."""

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        pattern: Pattern,
        dropout: float,
        rotary: Waves | None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_k = d_model // num_heads
        self.pattern, self.dropout, self.rotary = pattern, dropout, rotary
        self.qkv = Linear(d_model, (num_heads + 2 * num_kv_heads) * self.d_k)
        self.output = Linear(d_model, d_model)

    def in_heads(
        self,
        qkv: Float[Tensor, "B T P"],
        *,
        start: Number,
        length: int,
        positions: Int[Tensor, "T"] | slice = slice(None),
    ) -> tuple[Float[Tensor, "B H T K"], KeysValues]:
        """[Q, K, V] = X [W_Q, W_K, W_V] cut into heads, and turned by rotary positions.

        The tokens stand at start … start+length-1, in order; with `length` 1 all T at that one.
        `positions` gives each token's own, counted from `start`. `length` is an integer because a
        compiler cannot trace the size of a `range`.
        """
        heads, groups = self.num_heads, self.num_kv_heads
        in_heads = split_heads(qkv, heads + 2 * groups)
        scored, values = torch.split(in_heads, [heads + groups, groups], dim=1)
        if self.rotary is not None:
            scored = rotate(scored, self.rotary(start, length, scored)[positions])
        query, keys = torch.split(scored, [heads, groups], dim=1)
        return query, KeysValues(keys, values)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "B T D"]:
        """`mask` says what is not padding, `packing` how sentences lie end to end in one row."""
        if packing is not None:
            return self._packed(x, packing)
        query, memory = self.in_heads(self.qkv(x), start=0, length=x.shape[1])
        dropout = self.dropout if self.training else 0.0
        heads = self.pattern(query, memory, mask=mask, dropout=dropout)
        return self.output(join_heads(heads))  # type: ignore[no-any-return]

    def _packed(self, x: Float[Tensor, "1 M D"], packing: Packing) -> Float[Tensor, "1 M D"]:
        query, memory = self.in_heads(
            self.qkv(x), start=0, length=packing.longest, positions=packing.positions
        )
        heads = self.pattern.packed(query, memory, packing)
        return self.output(join_heads(heads))  # type: ignore[no-any-return]

    def empty_cache(self, sentences: int, like: Float[Tensor, "..."]) -> Cache:
        """The memory before the first token, of `like`'s type and device."""
        return self.pattern.empty_cache(sentences, self.num_kv_heads, self.d_k, like)

    def step(
        self, x: Float[Tensor, "R D"], cache: Cache, ancestry: Ancestry, places: Places
    ) -> Float[Tensor, "R D"]:
        """Read one more token of the hypotheses in these places, the last in `ancestry`."""
        qkv = places.spread(self.qkv(x))
        query, new = self.in_heads(qkv, start=ancestry.length - 1, length=1)
        heads = self.pattern.step(query, new, cache, ancestry)
        return self.output(places.rows(join_heads(heads)))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Queries from the target; keys and values from the source, projected once a sentence.

    The source may be of another size than the target (`memory_size`), and a value of another size
    than a key (`d_v`).
    """

    def __init__(
        self,
        *,
        d_model: int,
        memory_size: int,
        num_heads: int,
        num_kv_heads: int,
        d_v: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.dropout = dropout
        self.sizes = [num_kv_heads * (d_model // num_heads), num_kv_heads * d_v]
        self.query = Linear(d_model, d_model)
        self.key_value = Linear(memory_size, sum(self.sizes))
        self.output = Linear(num_heads * d_v, d_model)

    def keys_values(self, states: Float[Tensor, "B S M"]) -> KeysValues:
        """[K, V] = H [W_K, W_V] of the encoder's states H, cut into heads."""
        keys, values = self.key_value(states).split(self.sizes, dim=-1)
        return KeysValues(
            split_heads(keys, self.num_kv_heads), split_heads(values, self.num_kv_heads)
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeysValues,
        *,
        padding: Float[Tensor, "B 1 1 S"] | None = None,
        sentences: SameSentence | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        """Read the source for the target. Weights are computed only where they are wanted.

        `padding` is added to the scores (`added_to_scores`); None where there is none. `sentences`
        that lie end to end have no weights to give.
        """
        query = split_heads(self.query(x), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        keys, values = memory.keys, memory.values
        weights = None
        if sentences is not None:
            heads = sentences.attention(query, memory, causal=False)
        elif need_weights:
            heads, weights = readable_attention(query, keys, values, bias=padding, dropout=dropout)
        else:
            heads = fused_attention(query, keys, values, bias=padding, dropout=dropout)
        return self.output(join_heads(heads)), weights

    def step(
        self,
        x: Float[Tensor, "R D"],
        memory: KeysValues,
        places: Places,
        *,
        padding: Float[Tensor, "B 1 1 S"] | None,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "B H n S"] | None]:
        """`forward` of the hypotheses in these places: a sentence's are queries to one memory."""
        query = split_heads(places.spread(self.query(x)), self.num_heads)
        keys, values = memory.keys, memory.values
        weights = None
        if need_weights:
            heads, weights = readable_attention(query, keys, values, bias=padding)
        else:
            heads = step_attention(query, keys, values, bias=padding)
        return self.output(places.rows(join_heads(heads))), weights
