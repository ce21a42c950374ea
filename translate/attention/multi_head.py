"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): over oneself, and over the source.

MultiHead(Q, K, V) = Concat(head_1 … head_H) W^O,  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.positions import rotate
from translate.attention.scaled_dot_product import fused_attention, readable_attention


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    """Cut the last dimension into heads."""
    return x.view(*x.shape[:-1], num_heads, -1).transpose(1, 2)


def join_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Concat(head_1 … head_H)."""
    return x.transpose(1, 2).flatten(-2)


@dataclass(frozen=True)
class KeysValues:
    """Projected keys and values, G heads each."""

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S K"]

    def at(self, rows: Int[Tensor, "C"]) -> KeysValues:
        """These rows of the batch, in this order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class KeyValueCache:
    """The keys and values of the tokens so far: grown by doubling, written in place."""

    def __init__(self, keys: Float[Tensor, "N G R K"], values: Float[Tensor, "N G R K"]) -> None:
        self.keys, self.values = keys, values  # R: room for more than is used yet

    @classmethod
    def empty(cls, rows: int, heads: int, d_k: int, like: Tensor) -> KeyValueCache:
        """A cache without tokens, with room for sixteen."""
        return cls(like.new_empty(rows, heads, 16, d_k), like.new_empty(rows, heads, 16, d_k))

    def append(self, new: KeysValues, length: int) -> KeysValues:
        """Write one token's keys and values at `length`; everything up to and including it."""
        if length == self.keys.shape[2]:
            self.keys = torch.cat((self.keys, torch.empty_like(self.keys)), dim=2)
            self.values = torch.cat((self.values, torch.empty_like(self.values)), dim=2)
        self.keys[:, :, length] = new.keys[:, :, 0]
        self.values[:, :, length] = new.values[:, :, 0]
        return KeysValues(self.keys[:, :, : length + 1], self.values[:, :, : length + 1])

    def at(self, rows: Int[Tensor, "M"]) -> KeyValueCache:
        """A cache of these rows, in this order."""
        return KeyValueCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class MultiHeadAttention(nn.Module):
    """What self- and cross-attention share: heads, the choice of twin, and W^O."""

    def __init__(
        self, *, d_model: int, num_heads: int, num_kv_heads: int, dropout: float, bias: bool = True
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_k = d_model // num_heads
        self.dropout = dropout
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def attend(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        """Attention of every head, then W^O. Weights are computed only where they are wanted."""
        dropout = self.dropout if self.training else 0.0
        keys, values = memory.keys, memory.values
        weights = None
        if need_weights:
            heads, weights = readable_attention(
                query, keys, values, mask=mask, causal=causal, dropout=dropout
            )
        else:
            heads = fused_attention(query, keys, values, mask=mask, causal=causal, dropout=dropout)
        return self.output(join_heads(heads)), weights


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from the same sequence, in one fused projection."""

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        dropout: float,
        rotary: bool,
        bias: bool = True,
    ) -> None:
        super().__init__(
            d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads,
            dropout=dropout, bias=bias,
        )  # fmt: skip
        self.rotary = rotary
        self.qkv = nn.Linear(d_model, (num_heads + 2 * num_kv_heads) * self.d_k, bias=bias)

    def project(
        self, x: Float[Tensor, "B T D"], start: int = 0
    ) -> tuple[Float[Tensor, "B H T K"], KeysValues]:
        """[Q, K, V] = X [W_Q, W_K, W_V], cut into heads; `start` is the position of x[:, 0]."""
        heads = split_heads(self.qkv(x), self.num_heads + 2 * self.num_kv_heads)
        sizes = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        query, keys, values = torch.split(heads, sizes, dim=1)
        if self.rotary:
            query, keys = rotate(query, start), rotate(keys, start)
        return query, KeysValues(keys, values)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "B T D"]:
        query, memory = self.project(x)
        return self.attend(query, memory, mask=mask, causal=causal)[0]

    def step(
        self, x: Float[Tensor, "N 1 D"], cache: KeyValueCache, length: int
    ) -> Float[Tensor, "N 1 D"]:
        """One more token after `length` others: it may see them all, so no mask is needed."""
        query, new = self.project(x, start=length)
        return self.attend(query, cache.append(new, length))[0]


class CrossAttention(MultiHeadAttention):
    """Queries from the target; keys and values from the source, projected once a sentence."""

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        dropout: float,
        bias: bool = True,
    ) -> None:
        super().__init__(
            d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads,
            dropout=dropout, bias=bias,
        )  # fmt: skip
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key_value = nn.Linear(d_model, 2 * num_kv_heads * self.d_k, bias=bias)

    def keys_values(self, memory: Float[Tensor, "B S D"]) -> KeysValues:
        """[K, V] = M [W_K, W_V], cut into heads."""
        keys, values = split_heads(self.key_value(memory), 2 * self.num_kv_heads).chunk(2, dim=1)
        return KeysValues(keys, values)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        query = split_heads(self.query(x), self.num_heads)
        return self.attend(query, memory, mask=mask, need_weights=need_weights)
