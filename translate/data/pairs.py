"""Sentences with their translations: in memory, and in Arrow files that are mapped into it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from jaxtyping import Int, UInt64

# (source word, target word), counted from 0 over words between spaces
Links = tuple[tuple[int, int], ...]
CHUNK = 10_000  # pairs written, read and tokenised at a time
ALIGNMENT = pyarrow.list_(pyarrow.list_(pyarrow.int32()))
SCHEMA = pyarrow.schema(
    {
        "source": pyarrow.string(),
        "target": pyarrow.string(),
        "group": pyarrow.string(),
        "alignment": ALIGNMENT,
    }
)
Places = Int[np.ndarray, "places"]  # of pairs in a table


class Pair(NamedTuple):
    """A sentence and one translation.

    `group` is a book or a domain that it belongs to, `alignment` gold links.
    """

    source: str
    target: str
    group: str = ""
    alignment: Links = ()


class Unreadable(Pair):
    """A row of a table that cannot be read as a pair: its text is the source, why the group."""

    @classmethod
    def of(cls, text: str, reason: str) -> Unreadable:
        """Return the place of a row with this text among the pairs."""
        return cls(text, "", reason)

    @property
    def reason(self) -> str:
        """The property of the row that is wrong: `it has 3 cells, where the table has 2`."""
        return self.group


class Lines(list[Pair]):
    """The pairs of a file, a line each; above the line `first` stands its header."""

    def __init__(self, pairs: Iterable[Pair], *, first: int) -> None:
        super().__init__(pairs)
        self.first = first


class Item(NamedTuple):
    """An item to score: a source sentence with all its references.

    `alignment` and `group` are those of the first.
    """

    source: str
    references: tuple[str, ...]
    alignment: Links = ()
    group: str = ""


def items(pairs: Iterable[Pair]) -> list[Item]:
    """One item a distinct source sentence, sentences and references in order of appearance."""
    firsts: dict[str, Pair] = {}
    targets: dict[str, dict[str, None]] = defaultdict(dict)
    for pair in pairs:
        firsts.setdefault(pair.source, pair)
        targets[pair.source].setdefault(pair.target)
    return [
        Item(source, tuple(targets[source]), first.alignment, first.group)
        for source, first in firsts.items()
    ]


def mapped(path: Path) -> pyarrow.Table:
    """A stream file of Arrow, of which nothing is read yet but its outline."""
    return pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()


def in_order(table: pyarrow.Table, name: str) -> Iterator[Any]:
    """Every value of a column, read a chunk at a time."""
    for chunk in table.column(name).chunks:
        yield from chunk.to_pylist()


def at(table: pyarrow.Table, name: str, rows: Iterable[int]) -> list[Any]:
    """The values of some rows, a microsecond or two each."""
    column = table.column(name)
    return [column[row].as_py() for row in rows]


class PairTable:
    """Pairs in a memory-mapped Arrow file: those at `places`, in that order, or all.

    Reading them in order is by chunks; one alone takes some microseconds.
    """

    def __init__(self, table: pyarrow.Table, places: Places | None = None) -> None:
        self._table, self._columns = table, table.columns
        self.places = np.arange(len(table), dtype=np.int32) if places is None else places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Pair:
        place = int(self.places[index])
        return _pair(*(column[place].as_py() for column in self._columns))

    def __iter__(self) -> Iterator[Pair]:
        """Sorted places are read chunk by chunk, others one by one."""
        if np.any(np.diff(self.places) < 0):
            yield from map(self.__getitem__, range(len(self)))
            return
        chunks = self._table.to_batches()
        firsts = np.cumsum([0, *map(len, chunks)])
        borders = pairwise(np.searchsorted(self.places, firsts))
        for chunk, first, (start, end) in zip(chunks, firsts, borders, strict=False):
            if start < end:
                rows = chunk.take(pyarrow.array(self.places[start:end] - first))
                yield from map(_pair, *(column.to_pylist() for column in rows.columns))

    @property
    def aligned(self) -> bool:
        """True if any pair of the file has gold links."""
        return any(len(chunk.flatten()) for chunk in self._table.column("alignment").chunks)

    def at(self, indices: Places) -> PairTable:
        """Some of these pairs, by their indices; nothing is copied."""
        return PairTable(self._table, self.places[indices])

    def without(self, others: PairTable) -> PairTable:
        """Return these pairs without others of the same file; nothing is copied."""
        places = np.setdiff1d(self.places, others.places, assume_unique=True)
        return PairTable(self._table, places)


def _pair(source: str, target: str, group: str, links: Sequence[Sequence[int]]) -> Pair:
    return Pair(source, target, group, tuple((i, j) for i, j in links))


def write_pairs(path: Path, pairs: Iterable[Pair]) -> PairTable:
    """Keep pairs in a file, as they come."""
    pairs = iter(pairs)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, SCHEMA) as writer:
        while chunk := list(islice(pairs, CHUNK)):
            columns = zip(SCHEMA, zip(*chunk, strict=True), strict=True)
            writer.write_batch(
                pyarrow.record_batch(
                    [pyarrow.array(values, field.type) for field, values in columns], SCHEMA
                )
            )
    return PairTable(mapped(path))


def digests(texts: Iterable[str]) -> UInt64[np.ndarray, "texts"]:
    """A number for each text, the same for the same text: 64 bits of BLAKE2.

    Of ten million different texts two have the same number with a probability of 3 in a million.
    """
    return np.fromiter(map(_digest, texts), dtype=np.uint64)


def _digest(text: str) -> int:
    # surrogatepass: what no UTF-8 can hold is told apart, too
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    )
