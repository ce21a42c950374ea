"""The memory of self-attention between two decoding steps: keys and values of the tokens so far.

The hypotheses of a sentence share one cache, with a column for every token that any of them wrote;
`Ancestry` tells whose past each column is, and `Places` where the hypotheses stand that a step
reads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
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
        """Return these rows of the batch, in this order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def contiguous(self) -> KeysValues:
        """Each in one piece, for what is read at every step."""
        return KeysValues(self.keys.contiguous(), self.values.contiguous())


@dataclass(frozen=True)
class Places:
    """The places of a batch, n a sentence, and the R `live` ones, which a step reads.

    Beams are as wide as the widest, so those where hypotheses have ended have empty places. What
    concerns a hypothesis alone, all products with weights above all, is computed in rows of the
    live ones; attention, where the hypotheses of a sentence meet the same keys, in places.
    """

    sentences: int
    beam: int
    live: Int[Tensor, "R"] | None  # the place of each row; None: row i is place i
    rows_at: Int[Tensor, "N"] | None  # the row of each place, any for those that are not live

    @classmethod
    def of(cls, sentences: int, beam: int, live: Int[Tensor, "R"] | None = None) -> Places:
        """All places, or those that are `live`."""
        if live is None:
            return cls(sentences, beam, None, None)
        rows_at = live.new_zeros(sentences * beam)
        rows_at[live] = torch.arange(len(live), device=live.device)
        return cls(sentences, beam, live, rows_at)

    def rows(self, x: Shaped[Tensor, "B n *rest"]) -> Shaped[Tensor, "R *rest"]:
        """The contents of the live places."""
        every = x.flatten(0, 1)
        return every if self.live is None else every.index_select(0, self.live)

    def spread(self, x: Shaped[Tensor, "R *rest"]) -> Shaped[Tensor, "B n *rest"]:
        """Each row in its place; the contents of the others mean nothing."""
        every = x if self.rows_at is None else x.index_select(0, self.rows_at)
        return every.view(self.sentences, self.beam, *x.shape[1:])


@dataclass(frozen=True)
class Ancestry:
    """The tokens in the caches that are each hypothesis' own past.

    When a beam is reordered nothing in the caches moves: this table alone does, and self-attention
    adds it to its scores. A beam of two, both of which begin with a and b, and go on with c and c':

        column    a   b   b'  c   c'     in the order in which they were written
        stands    0   1   1   2   2
        bias      0   0  -∞   0  -∞      of the hypothesis a b c
                  0   0  -∞  -∞   0      of the hypothesis a b c'

    Tables with `room` keep their shapes from the first token on: nobody sees a column before it is
    written.
    """

    length: Number  # tokens of every hypothesis
    # where in its hypothesis the token of each column stands; None: token t in column t
    stands: Int[Tensor, "B C"] | None = None
    bias: Float[Tensor, "B 1 n C"] | None = None  # 0: its own, -inf: not; None: all are its own
    room: int | None = None  # columns of the tables; None: as many as are written
    used: Int[Tensor, ""] | None = None  # where there is `room`: columns that are written

    def positions(
        self, keys: Float[Tensor, "B G C K"]
    ) -> Int[Tensor, "C"] | Int[Tensor, "B 1 1 C"]:
        """The place in its hypothesis of the token of each column of these keys."""
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
        if beam == 1 and self.bias is None and self.room is None:
            return Ancestry(self.length + 1)
        itself = torch.eye(beam, dtype=torch.bool, device=like.device)
        if self.room is None:
            assert isinstance(self.length, int)
            stands, before = self._tables(self.length, sentences, beam, like)
            new = added_to_scores(itself, like.dtype).expand(sentences, 1, -1, -1)
            stands = F.pad(stands, (0, beam), value=self.length)
            return Ancestry(self.length + 1, stands, torch.cat((before, new), dim=3))
        assert isinstance(self.length, Tensor)
        assert self.used is not None
        stands, before = self._tables(self.room, sentences, beam, like)
        columns = self.used + torch.arange(beam, device=like.device)
        new = added_to_scores(itself, before.dtype).expand(sentences, 1, -1, -1)
        return replace(
            self,
            length=self.length + 1,
            stands=stands.index_copy(1, columns, self.length.expand(sentences, beam)),
            bias=before.index_copy(3, columns, new),
            used=self.used + beam,
        )

    def _tables(
        self, columns: int, sentences: int, beam: int, like: Float[Tensor, "..."]
    ) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B 1 n C"]]:
        """The tables; where there are none yet, all hypotheses have the same past."""
        if self.stands is not None and self.bias is not None:
            return self.stands, self.bias
        order = torch.arange(columns, device=like.device)
        bias = like.new_zeros(sentences, 1, beam, columns)
        if self.used is not None:
            bias = bias.masked_fill(order >= self.used, -math.inf)
        return order.expand(sentences, -1), bias

    def select(self, hypotheses: Int[Tensor, "M"]) -> Ancestry:
        """The past of these rows, as many of each sentence."""
        if self.bias is None:
            return self
        rows = self.bias.flatten(0, 2).index_select(0, hypotheses)
        return replace(self, bias=rows.view(len(self.bias), 1, -1, rows.shape[1]))

    def keep(self, sentences: Int[Tensor, "C"]) -> tuple[Ancestry, Int[Tensor, "C c"] | None]:
        """The past of these sentences' hypotheses, and the columns that it is in; None: all.

        Columns that no hypothesis sees are left out, as many as every sentence has. On a GPU none
        are: to count them would be to wait for it.
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

    @property
    def columns(self) -> int:
        """Tokens that some hypothesis wrote."""
        return int(self.length) if self.stands is None else self.stands.shape[1]

    def reserved(self, columns: int, device: torch.device) -> Ancestry:
        """The same past with room for so many more columns, which keeps its shapes."""
        room, used, stands, bias = room_for(self.columns + columns), self.columns, None, None
        if self.stands is not None and self.bias is not None:
            stands = F.pad(self.stands, (0, room - used))
            bias = F.pad(self.bias, (0, room - used), value=-math.inf)
        return Ancestry(
            number_on(device, self.length), stands, bias, room=room, used=number_on(device, used)
        )

    def without_room(self) -> Ancestry:
        """The past of a hypothesis alone: it has no tables."""
        return self

    def released(self, before: Ancestry, *, tokens: int, columns: int) -> Ancestry:
        """The past as it would be without `reserved`, so many tokens and columns after `before`."""
        length = before.length + tokens
        if self.stands is None or self.bias is None or (before.bias is None and columns == tokens):
            return Ancestry(length)
        used = before.columns + columns
        return Ancestry(length, self.stands[:, :used], self.bias[..., :used])


def room_for(columns: int) -> int:
    """Return how many columns to reserve for so many: few numbers, so that memory is used again."""
    return -(-columns // ROOM) * ROOM


class Kept(NamedTuple):
    """The part of a memory that stays when finished sentences leave."""

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


@dataclass
class KeyValueCache(Cache):
    """The keys and values of all tokens of a sentence, written in place.

    It grows by doubling, unless `used` is a tensor: then its room is `reserved` and is handed out
    as a whole, with zeros in the rest, which `Ancestry` hides. Without `used` it has no room: each
    token makes keys and values anew, as in a graph, which has no memory of its own.
    """

    keys: Float[Tensor, "B G Room K"]  # room for more columns than are used yet
    values: Float[Tensor, "B G Room K"]
    used: Number | None

    @classmethod
    def empty(cls, sentences: int, heads: int, d_k: int, like: Tensor) -> KeyValueCache:
        """A cache without tokens, with some room."""
        shape = (sentences, heads, ROOM, d_k)
        return cls(like.new_empty(shape), like.new_empty(shape), used=0)

    def append(self, new: KeysValues) -> KeysValues:
        """Add a token of each of a sentence's hypotheses; return all that is remembered."""
        count = new.keys.shape[2]
        if self.used is None:
            self.keys = torch.cat((self.keys, new.keys), dim=2)
            self.values = torch.cat((self.values, new.values), dim=2)
            return KeysValues(self.keys, self.values)
        if isinstance(self.used, Tensor):
            columns = self.used + torch.arange(count, device=self.keys.device)
            self.keys.index_copy_(2, columns, new.keys)
            self.values.index_copy_(2, columns, new.values)
            self.used = self.used + count
            return KeysValues(self.keys, self.values)
        while self.used + count > self.keys.shape[2]:
            self.keys, self.values = _doubled(self.keys), _doubled(self.values)
        self.keys.narrow(2, self.used, count).copy_(new.keys)
        self.values.narrow(2, self.used, count).copy_(new.values)
        self.used += count
        return KeysValues(*self._written())

    def _written(self) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        assert isinstance(self.used, int)
        return self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used)

    def select(self, hypotheses: Int[Tensor, "M"]) -> KeyValueCache:
        return self  # the sentence's own, whose hypotheses `Ancestry` tells apart

    def keep(self, kept: Kept) -> KeyValueCache:
        sentences, _, columns = kept
        heads, room = self.keys.shape[1:3]
        if columns is None:
            assert isinstance(self.used, int)
            columns = torch.arange(self.used, device=sentences.device).expand(len(sentences), -1)
        # a row for each column of each head, and for what is to be written
        of_heads = sentences[:, None] * heads + torch.arange(heads, device=sentences.device)
        rows = of_heads[:, :, None] * room + F.pad(columns, (0, ROOM))[:, None]
        keys, values = (
            x.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, -1)
            for x in (self.keys, self.values)
        )
        return KeyValueCache(keys, values, columns.shape[1])

    def without_room(self) -> KeyValueCache:
        """The cache whose tensors are as long as what is written in them."""
        if self.used is None:
            return self
        return KeyValueCache(*self._written(), used=None)

    def reserved(self, columns: int, device: torch.device) -> KeyValueCache:
        """The cache with room for so many more columns, which keeps its shape."""
        keys, values = self._written()
        used = keys.shape[2]
        more = (0, 0, 0, room_for(used + columns) - used)
        return KeyValueCache(F.pad(keys, more), F.pad(values, more), number_on(device, used))

    def released(self, before: KeyValueCache, *, tokens: int, columns: int) -> KeyValueCache:
        """The `reserved` cache as one that grows again, so many columns after `before`."""
        assert isinstance(before.used, int)
        return KeyValueCache(self.keys, self.values, before.used + columns)


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


def as_rows(x: Float[Tensor, "B H n K"]) -> Float[Tensor, "N H 1 K"]:
    """The heads of every hypothesis by itself, for what is remembered in rows."""
    return x.transpose(1, 2).flatten(0, 1)[:, :, None]


def as_beams(x: Float[Tensor, "N H 1 K"], beam: int) -> Float[Tensor, "B H n K"]:
    """The heads of a sentence's hypotheses together again."""
    return x.view(-1, beam, x.shape[1], x.shape[3]).transpose(1, 2)
