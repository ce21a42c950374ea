"""Self-attention that does not meet every key one by one: sparse patterns, linear attention.

A sliding window is computed in time and memory linear in length, and so is linear attention, with a
kernel φ in place of the softmax (Katharopoulos et al. 2020, eq. 5):

    V'_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)

The sums do not depend on the query: one pass over the keys makes them, and a causal decoder carries
them from token to token like the state of an RNN. Without the division it is a fast-weight
controller (Schmidhuber 1992; Schlag et al. 2021): keys and values write a matrix, queries read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from translate.attention.cache import ROOM, Ancestry, KeysValues, RowCache, as_beams, as_rows
from translate.attention.dot_product import fused_attention, repeat_groups, step_attention
from translate.attention.masks import causal_mask, fixed_mask, sliding_window_mask, strided_mask
from translate.attention.multi_head import FullAttention, Pattern
from translate.attention.positions import Relation


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


CHUNK = 64  # queries and keys that meet each other one by one in the causal form


def feature_map(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, eq. 7)."""
    # as elu(x) + 1 it would be 0 from -17 on, by rounding
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def sum_normalised(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """φ(x) / Σ_i φ(x)_i (Schlag et al. 2021, section 4.2): they sum to one.

    Without the division by the sum over keys, sums of φ itself are some hundred values large, and
    a model learns nothing from them.
    """
    # the quotient is the same for exp(x - c) where all x are negative, and none underflows
    highest = x.detach().amax(-1, keepdim=True).clamp(max=0)
    features = torch.where(x > 0, x + 1, (x.clamp(max=0) - highest).exp())
    return features / features.sum(-1, keepdim=True)


def with_ones(values: Float[Tensor, "B G S Kv"]) -> Float[Tensor, "B G S Ks"]:
    """[v ; 1]: Σ φ(k) [v ; 1]ᵀ holds both sums of eq. 5, the second as its last column."""
    return F.pad(values, (0, 1), value=1.0)


def divide_by_last(sums: Float[Tensor, "*rows Ks"]) -> Float[Tensor, "*rows Kv"]:
    """The numerator by the denominator beside it; where nothing was summed, zeros."""
    denominator = sums[..., -1:]
    return sums[..., :-1] / denominator.masked_fill(denominator == 0, 1.0)


def sums_over_all(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B H S K"],
    values: Float[Tensor, "B H S Ks"],
) -> Float[Tensor, "B H T Ks"]:
    """q_iᵀ Σ_j k_j v_jᵀ over all keys."""
    return query @ (keys.transpose(2, 3) @ values)


def sums_so_far(
    query: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B H T K"],
    values: Float[Tensor, "B H T Ks"],
) -> Float[Tensor, "B H T Ks"]:
    """q_iᵀ Σ_{j≤i} k_j v_jᵀ, by chunks of c: memory O(N (c + K V / c)) rather than O(N K V).

    Within a chunk each query meets each key; what came before the chunk is one matrix for it.
    """
    length = query.shape[2]
    query, keys, values = (
        F.pad(x, (0, 0, 0, -length % CHUNK)).view(*x.shape[:2], -1, CHUNK, x.shape[3])
        for x in (query, keys, values)
    )
    scores = query @ keys.transpose(3, 4)  # (B, H, chunks, c, c)
    within = scores.masked_fill(~causal_mask(CHUNK, query.device), 0.0) @ values
    chunks = keys.transpose(3, 4) @ values  # (B, H, chunks, K, V)
    before = F.pad(chunks.cumsum(dim=2), (0, 0, 0, 0, 1, 0))[:, :, :-1]
    return (within + query @ before).flatten(2, 3)[:, :, :length]


@dataclass
class FastWeights(RowCache):
    """Σ φ(k) vᵀ over the tokens so far: a matrix a head, however many tokens there were."""

    sums: Float[Tensor, "N G K Ks"]

    def write(self, key: Float[Tensor, "N G 1 K"], value: Float[Tensor, "N G 1 Ks"]) -> None:
        """Add the outer product of a key and its value."""
        self.sums = self.sums + key.transpose(2, 3) * value

    def at(self, rows: Int[Tensor, "M"]) -> FastWeights:
        return FastWeights(self.sums.index_select(0, rows))


class FastWeightAttention(Pattern):
    """φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ: the sums alone, which grow with the sentence; φ sums to one.

    There are no scores: no relation can be told in them, and there are no weights to drop.
    """

    def __init__(self, *, causal: bool, relation: None = None) -> None:
        super().__init__(causal=causal)

    @staticmethod
    def features(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """The features φ of a query or key."""
        return sum_normalised(x)

    @staticmethod
    def stored(values: Float[Tensor, "B G S Kv"]) -> Float[Tensor, "B G S Ks"]:
        """The Ks numbers that a key stores."""
        return values

    @staticmethod
    def result(sums: Float[Tensor, "B H T Ks"]) -> Float[Tensor, "B H T Kv"]:
        """The output that a query makes of its sums."""
        return sums

    def forward(
        self,
        query: Float[Tensor, "B H T K"],
        memory: KeysValues,
        *,
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B H T Kv"]:
        with torch.autocast(query.device.type, enabled=False):  # float32: the sums grow long
            features, keys, values = self.prepared(query, memory)
            if mask is not None:
                keys = keys * mask.transpose(2, 3)
            keys, values = (repeat_groups(x, query.shape[1]) for x in (keys, values))
            sums = sums_so_far if self.causal else sums_over_all
            return self.result(sums(features, keys, values)).to(query.dtype)

    def prepared(
        self, query: Float[Tensor, "B H T K"], memory: KeysValues
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G T K"], Float[Tensor, "B G T Ks"]]:
        """φ(q), φ(k) and what is stored under φ(k), in float32 at least."""
        dtype = torch.promote_types(query.dtype, torch.float32)
        values = self.stored(memory.values.to(dtype))
        return self.features(query.to(dtype)), self.features(memory.keys.to(dtype)), values

    def empty_cache(self, sentences: int, heads: int, d_k: int, like: Tensor) -> FastWeights:
        dtype = torch.promote_types(like.dtype, torch.float32)
        # not as the product of no keys and no values, which ONNX Runtime does not compute
        width = self.stored(like.new_zeros(1, 1, 1, d_k)).shape[3]
        return FastWeights(like.new_zeros(sentences, heads, d_k, width, dtype=dtype))

    def step(
        self,
        query: Float[Tensor, "B H n K"],
        new: KeysValues,
        cache: FastWeights,  # type: ignore[override]  # each pattern steps its own cache
        ancestry: Ancestry,
    ) -> Float[Tensor, "B H n Kv"]:
        with torch.autocast(query.device.type, enabled=False):
            features, key, value = map(as_rows, self.prepared(query, new))
            cache.write(key, value)
            sums = repeat_groups(cache.sums, query.shape[1])
            heads = self.result(features @ sums).to(query.dtype)
        return as_beams(heads, query.shape[2])


class LinearAttention(FastWeightAttention):
    """Katharopoulos et al. 2020, eq. 5: the same sums, divided by those of φ(k) alone."""

    features = staticmethod(feature_map)
    stored = staticmethod(with_ones)
    result = staticmethod(divide_by_last)
