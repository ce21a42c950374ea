"""What self-attention remembers of the tokens so far, between two decoding steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from translate.attention.masks import added_to_scores

ROOM = 16  # columns that a new cache has to be written in

Number = int | Int[Tensor, ""]  # a tensor where one program is to serve every number


def number_on(device: torch.device, number: Number) -> Int[Tensor, ""]:
    """The number as a tensor, without waiting for the device."""
    return torch.zeros((), dtype=torch.long, device=device) + number


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


@dataclass(frozen=True)
class Ancestry:
    """Which tokens that lie in the caches are each hypothesis' own past.

    The hypotheses of a sentence share one cache, with a column for every token that any of them
    wrote. When a beam is reordered nothing in the caches moves: this table alone does, and
    self-attention adds it to its scores.
    """

    length: int  # tokens of every hypothesis
    # where in its hypothesis the token of each column stands; None: token t in column t
    stands: Int[Tensor, "B C"] | None = None
    bias: Float[Tensor, "B 1 n C"] | None = None  # 0: its own, -inf: not; None: all are its own

    def positions(
        self, keys: Float[Tensor, "B G C K"]
    ) -> Int[Tensor, "C"] | Int[Tensor, "B 1 1 C"]:
        """Where in its hypothesis the token of each column of these keys stands."""
        if self.stands is None:
            return torch.arange(keys.shape[2], device=keys.device)
        return self.stands[:, None, None]

    def last(self, device: torch.device) -> Int[Tensor, "1"]:
        """The position of the last token."""
        return number_on(device, self.length - 1)[None]

    def grown(self, sentences: int, beam: int, like: Float[Tensor, "..."]) -> Ancestry:
        """The ancestry with a further token of every hypothesis, which that one alone sees.

        `bias` is of `like`'s type and device.
        """
        if beam == 1 and self.bias is None:
            return Ancestry(self.length + 1)
        own = torch.eye(beam, dtype=torch.bool, device=like.device)
        new = added_to_scores(own, like.dtype).expand(sentences, 1, -1, -1)
        stands, before = self.stands, self.bias
        if stands is None:
            stands = torch.arange(self.length, device=like.device).expand(sentences, -1)
        if before is None:
            before = like.new_zeros(sentences, 1, beam, self.length)
        stands = F.pad(stands, (0, beam), value=self.length)
        return Ancestry(self.length + 1, stands, torch.cat((before, new), dim=3))

    def select(self, hypotheses: Int[Tensor, "M"]) -> Ancestry:
        """The past of these rows, as many of each sentence."""
        if self.bias is None:
            return self
        rows = self.bias.flatten(0, 2).index_select(0, hypotheses)
        return replace(self, bias=rows.view(len(self.bias), 1, -1, rows.shape[1]))

    @property
    def columns(self) -> int:
        """Of the tables: tokens that some hypothesis wrote."""
        return self.length if self.stands is None else self.stands.shape[1]

    def fixed(self, room: int, beam: int, like: Float[Tensor, "B ..."]) -> FixedAncestry:
        """The same past, with columns for further tokens, `room` in all."""
        used, device = self.columns, like.device
        stands, bias = self.stands, self.bias
        if stands is None:
            stands = torch.arange(used, device=device).expand(len(like), -1)
        if bias is None:
            bias = like.new_zeros(len(like), 1, beam, used)
        return FixedAncestry(
            length=number_on(device, self.length),
            stands=F.pad(stands, (0, room - used)),
            bias=F.pad(bias, (0, room - used), value=-math.inf),
            used=number_on(device, used),
            before=used - beam * self.length,
            plain=beam == 1 and self.bias is None,
        )

    def settled(self, length: int) -> Ancestry:
        """Of a `fixed` ancestry after `length` tokens, the tables that are written."""
        raise TypeError("an ancestry that is not fixed has nothing to settle")

    def keep(self, sentences: Int[Tensor, "C"]) -> tuple[Ancestry, Int[Tensor, "C c"] | None]:
        """The past of these sentences' hypotheses, and the columns that it is in; None: all.

        Columns without descendants are left out, as far as every sentence has as many of them. To
        count them on a GPU would be to wait for it.
        """
        if self.stands is None or self.bias is None:
            return self, None
        stands, bias = (x.index_select(0, sentences) for x in (self.stands, self.bias))
        if bias.device.type != "cpu":
            return replace(self, stands=stands, bias=bias), None
        seen = (bias == 0).any(dim=2)[:, 0]  # (C, columns)
        most = int(seen.sum(1).max())
        columns = seen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        bias = bias.gather(3, columns[:, None, None].expand(*bias.shape[:3], -1))
        return replace(self, stands=stands.gather(1, columns), bias=bias), columns


@dataclass(frozen=True, kw_only=True)
class FixedAncestry(Ancestry):
    """An ancestry whose tables keep their shapes: their columns are there before they are written.

    Nobody sees those that are not.
    """

    length: Int[Tensor, ""]  # type: ignore[assignment]  # for positions it may be either
    stands: Int[Tensor, "B Room"]
    bias: Float[Tensor, "B 1 n Room"]
    used: Int[Tensor, ""]  # columns that are written
    before: int  # how many are written besides n for each token; below 0 where n was less
    plain: bool  # token t is in column t, of one hypothesis: no table is needed

    def grown(self, sentences: int, beam: int, like: Float[Tensor, "..."]) -> FixedAncestry:
        columns = self.used + torch.arange(beam, device=like.device)
        own = torch.eye(beam, dtype=torch.bool, device=like.device)
        own = added_to_scores(own, self.bias.dtype)
        return replace(
            self,
            length=self.length + 1,
            stands=self.stands.index_copy(1, columns, self.length.expand(sentences, beam)),
            bias=self.bias.index_copy(3, columns, own.expand(sentences, 1, -1, -1)),
            used=self.used + beam,
        )

    def keep(self, sentences: Int[Tensor, "C"]) -> tuple[Ancestry, Int[Tensor, "C c"] | None]:
        raise TypeError("a fixed ancestry keeps all its sentences: settle it first")

    def settled(self, length: int) -> Ancestry:
        if self.plain:
            return Ancestry(length)
        used = self.before + self.bias.shape[2] * length
        return Ancestry(length, self.stands[:, :used], self.bias[..., :used])


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
        """Of a `fixed` cache of which so many columns are written, one as it was before."""
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
