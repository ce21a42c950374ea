"""What self-attention remembers of the tokens so far, between two decoding steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.ancestry import number_on

ROOM = 16  # columns that a new cache has to be written in


@dataclass(frozen=True)
class KeysValues:
    """Projected keys and values, G heads each."""

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S Kv"]

    def at(self, rows: Int[Tensor, "C"]) -> KeysValues:
        """These rows of the batch, in this order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def contiguous(self) -> KeysValues:
        """Each in one piece, for what is read at every step."""
        return KeysValues(self.keys.contiguous(), self.values.contiguous())


class Kept(NamedTuple):
    """What stays when finished sentences leave."""

    sentences: Int[Tensor, "C"]
    hypotheses: Int[Tensor, "M"]  # of these
    columns: Int[Tensor, "C c"] | None  # of each, where its hypotheses share them; None: all


class Cache(ABC):
    """The memory of one self-attention."""

    @abstractmethod
    def select(self, hypotheses: Int[Tensor, "M"]) -> Self:
        """The memory of these hypotheses, in this order."""

    @abstractmethod
    def keep(self, kept: Kept) -> Self:
        """The memory of what is kept."""

    def traceable(self) -> Cache:
        """The cache for a graph, which has no memory of its own to write in."""
        return self

    def fixed(self, room: int) -> Cache | None:
        """The cache with room for so many columns, which keeps its shape; None: it cannot."""
        return None

    def settled(self, used: int) -> Cache:
        """A `fixed` cache of which `used` columns are written, as one that grows again."""
        return self


class KeyValueCache(Cache):
    """The keys and values of all tokens of a sentence: grown by doubling, written in place."""

    def __init__(
        self,
        keys: Float[Tensor, "B G Room K"],  # room for more columns than are used yet
        values: Float[Tensor, "B G Room K"],
        used: int,
    ) -> None:
        self.keys, self.values, self.used = keys, values, used

    @classmethod
    def empty(cls, sentences: int, heads: int, d_k: int, like: Tensor) -> KeyValueCache:
        """A cache without tokens, with some room."""
        shape = (sentences, heads, ROOM, d_k)
        return cls(like.new_empty(shape), like.new_empty(shape), used=0)

    def append(self, new: KeysValues) -> KeysValues:
        """Add a token of each of a sentence's hypotheses; all that is remembered."""
        count = new.keys.shape[2]
        while self.used + count > self.keys.shape[2]:
            self.keys, self.values = _doubled(self.keys), _doubled(self.values)
        self.keys.narrow(2, self.used, count).copy_(new.keys)
        self.values.narrow(2, self.used, count).copy_(new.values)
        self.used += count
        return KeysValues(self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used))

    def select(self, hypotheses: Int[Tensor, "M"]) -> KeyValueCache:
        return self  # the sentence's own, whose hypotheses `Ancestry` tells apart

    def keep(self, kept: Kept) -> KeyValueCache:
        sentences, _, columns = kept
        heads, room = self.keys.shape[1:3]
        if columns is None:
            columns = torch.arange(self.used, device=sentences.device).expand(len(sentences), -1)
        # a row for each column of each head, and for what is to be written
        of_heads = sentences[:, None] * heads + torch.arange(heads, device=sentences.device)
        rows = of_heads[:, :, None] * room + F.pad(columns, (0, ROOM))[:, None]
        keys, values = (
            x.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, -1)
            for x in (self.keys, self.values)
        )
        return KeyValueCache(keys, values, columns.shape[1])

    def traceable(self) -> GrowingCache:
        return GrowingCache(self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used))

    def fixed(self, room: int) -> FixedCache:
        keys, values = (
            F.pad(x.narrow(2, 0, self.used), (0, 0, 0, room - self.used))
            for x in (self.keys, self.values)
        )
        return FixedCache(keys, values, number_on(keys.device, self.used))


@dataclass
class FixedCache(Cache):
    """A `KeyValueCache` that never grows, and hands out its room with what is written in it.

    There are zeros in the rest, which `FixedAncestry` hides.
    """

    keys: Float[Tensor, "B G Room K"]
    values: Float[Tensor, "B G Room K"]
    used: Int[Tensor, ""]

    def append(self, new: KeysValues) -> KeysValues:
        """Add a token of each of a sentence's hypotheses; all columns."""
        count = new.keys.shape[2]
        columns = self.used + torch.arange(count, device=self.keys.device)
        self.keys.index_copy_(2, columns, new.keys)
        self.values.index_copy_(2, columns, new.values)
        self.used = self.used + count
        return KeysValues(self.keys, self.values)

    def select(self, hypotheses: Int[Tensor, "M"]) -> FixedCache:
        return self

    def keep(self, kept: Kept) -> FixedCache:
        raise TypeError("a fixed cache keeps all its sentences: settle it first")

    def settled(self, used: int) -> KeyValueCache:
        return KeyValueCache(self.keys, self.values, used)


def _doubled(x: Float[Tensor, "B G Room K"]) -> Float[Tensor, "B G Room2 K"]:
    """The same with as many columns again, in which nothing is written yet."""
    rows, heads, room, size = x.shape
    doubled = x.new_empty(rows, heads, 2 * room, size)
    doubled.narrow(2, 0, room).copy_(x)
    return doubled


class RowCache(Cache):
    """A memory with a row for each hypothesis, which moves with it."""

    @abstractmethod
    def at(self, rows: Int[Tensor, "M"]) -> Self:
        """A cache of these rows, in this order."""

    def select(self, hypotheses: Int[Tensor, "M"]) -> Self:
        return self.at(hypotheses)

    def keep(self, kept: Kept) -> Self:
        return self.at(kept.hypotheses)


@dataclass
class GrowingCache(RowCache):
    """The keys and values of all tokens of a hypothesis: each token makes them anew, longer."""

    keys: Float[Tensor, "N G T K"]
    values: Float[Tensor, "N G T K"]

    def append(self, new: KeysValues) -> KeysValues:
        """Add one token; all that is remembered."""
        self.keys = torch.cat((self.keys, new.keys), dim=2)
        self.values = torch.cat((self.values, new.values), dim=2)
        return KeysValues(self.keys, self.values)

    def at(self, rows: Int[Tensor, "M"]) -> GrowingCache:
        return GrowingCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class RingCache(RowCache):
    """The keys and values of the last `window` tokens.

    Token t lies in slot t mod window, over the token that left the window, so that memory is
    constant however long the sentence grows.
    """

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


def as_rows(x: Float[Tensor, "B H n K"]) -> Float[Tensor, "N H 1 K"]:
    """The heads of every hypothesis by itself, for what is remembered in rows."""
    return x.transpose(1, 2).flatten(0, 1)[:, :, None]


def as_beams(x: Float[Tensor, "N H 1 K"], beam: int) -> Float[Tensor, "B H n K"]:
    """The heads of a sentence's hypotheses together again."""
    return x.view(-1, beam, x.shape[1], x.shape[3]).transpose(1, 2)
