"""Sliding-window attention: each query sees a band of keys, in time and memory linear in length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from translate.attention.cache import ROOM, Ancestry, KeysValues, RowCache, as_beams, as_rows
from translate.attention.masks import sliding_window_mask
from translate.attention.patterns import FullAttention
from translate.attention.positions import Relation
from translate.attention.scaled_dot_product import fused_attention, step_attention

SMALLEST_BLOCK = 64  # queries a kernel call; narrower blocks cost more than they save


class RingCache(RowCache):
    """The keys and values of the last `window` tokens.

    Token t lies in slot t mod window, over the token that left the window, so that memory is
    constant however long the sentence grows.
    """

    no_graph = (
        "model.self_attention=sliding_window reads long sources in blocks and keeps the last words "
        "in a ring buffer, with branches that a graph cannot express"
    )

    def __init__(
        self,
        keys: Float[Tensor, "N G Room K"],  # room: at most the window
        values: Float[Tensor, "N G Room K"],
        *,
        window: int,
    ) -> None:
        self.keys, self.values, self.window = keys, values, window

    @classmethod
    def empty(cls, rows: int, heads: int, d_k: int, like: Tensor, *, window: int) -> RingCache:
        """A cache without tokens, with room for the first few, at most for the window."""
        shape = (rows, heads, min(ROOM, window), d_k)
        return cls(like.new_empty(shape), like.new_empty(shape), window=window)

    def append(self, new: KeysValues, length: int) -> tuple[KeysValues, Int[Tensor, "S"]]:
        """Add one token after `length` others; all that is remembered, and at which positions."""
        slot = length % self.window
        room = self.keys.shape[2]
        if slot == room:
            more = min(room, self.window - room)
            self.keys = torch.cat((self.keys, torch.empty_like(self.keys[:, :, :more])), dim=2)
            self.values = torch.cat(
                (self.values, torch.empty_like(self.values[:, :, :more])), dim=2
            )
        self.keys[:, :, slot] = new.keys[:, :, 0]
        self.values[:, :, slot] = new.values[:, :, 0]
        slots = torch.arange(min(length + 1, self.window), device=self.keys.device)
        used = KeysValues(self.keys[:, :, : len(slots)], self.values[:, :, : len(slots)])
        return used, length - (length - slots) % self.window

    def at(self, rows: Int[Tensor, "M"]) -> RingCache:
        return RingCache(
            self.keys.index_select(0, rows), self.values.index_select(0, rows), window=self.window
        )


class SlidingWindowAttention(FullAttention):
    """Longformer (Beltagy et al. 2020, section 3.1), without its global tokens.

    A window w shows an encoder ⌊w/2⌋ keys on each side, as in the paper, and a causal decoder the
    last w keys, its own among them: its cache is a ring of w entries.
    """

    sees_all = False

    def __init__(self, *, causal: bool, relation: Relation | None = None, window: int) -> None:
        super().__init__(causal=causal, relation=relation)
        self.window = window
        self.left, self.right = (window - 1, 0) if causal else (window // 2, window // 2)
        self.block = max(window, SMALLEST_BLOCK)

    def visible(
        self, queries: Int[Tensor, "*#pairs"], keys: Int[Tensor, "*#pairs"]
    ) -> Bool[Tensor, "*pairs"]:
        return sliding_window_mask(queries, keys, left=self.left, right=self.right)

    def empty_cache(self, sentences: int, heads: int, d_k: int, like: Tensor) -> RingCache:
        return RingCache.empty(sentences, heads, d_k, like, window=self.window)

    def step(
        self,
        query: Float[Tensor, "B H n K"],
        new: KeysValues,
        cache: RingCache,  # type: ignore[override]  # each pattern steps its own cache
        ancestry: Ancestry,
    ) -> Float[Tensor, "B H n Kv"]:
        rows, token = as_rows(query), KeysValues(as_rows(new.keys), as_rows(new.values))
        assert isinstance(ancestry.length, int)
        memory, keys = cache.append(token, ancestry.length - 1)
        here = ancestry.last(query.device)
        heads = step_attention(rows, memory.keys, memory.values, bias=self.bias(rows, here, keys))
        return as_beams(heads, query.shape[2])

    def fused(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None,
        dropout: float,
    ) -> Float[Tensor, "B H T Kv"]:
        if query.shape[2] <= self.block:
            return super().fused(query, memory, mask=mask, dropout=dropout)
        return self.in_blocks(query, memory, mask=mask, dropout=dropout)

    def in_blocks(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None,
        dropout: float,
    ) -> Float[Tensor, "B H T Kv"]:
        """Blocks of c queries, each against the left + c + right keys that any of it may see."""
        rows, num_heads, length, d_k = query.shape
        if mask is None:
            mask = query.new_ones(rows, 1, 1, length, dtype=torch.bool)
        queries = F.pad(query, (0, 0, 0, -length % self.block))
        queries = queries.view(rows, num_heads, -1, self.block, d_k)
        queries = queries.transpose(1, 2).flatten(0, 1)  # (B·blocks, H, c, K)
        at = torch.arange(self.block, device=query.device)
        around = torch.arange(-self.left, self.block + self.right, device=query.device)
        real = self.surroundings(mask.transpose(2, 3)).transpose(2, 3)  # (B·blocks, 1, 1, c')
        heads = fused_attention(
            queries, self.surroundings(memory.keys), self.surroundings(memory.values),
            mask=self.visible(at[:, None], around) & real, bias=self.bias(queries, at, around),
            dropout=dropout,
        )  # fmt: skip
        heads = heads.view(rows, -1, num_heads, self.block, heads.shape[3]).transpose(1, 2)
        return heads.flatten(2, 3)[:, :, :length]

    def surroundings(self, x: Shaped[Tensor, "B G S K"]) -> Shaped[Tensor, "BB G C K"]:
        """Each block of x with its neighbours, zeros beyond both ends: (B·blocks, G, c', K)."""
        width = self.left + self.block + self.right
        padded = F.pad(x, (0, 0, self.left, -x.shape[2] % self.block + self.right))
        windows = padded.unfold(2, width, self.block)  # (B, G, blocks, K, c')
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)
