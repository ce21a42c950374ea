"""What a check says: what is wrong, on which lines, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from translate.data.pairs import Lines, Pair

Splits = Mapping[str, Sequence[Pair]]  # by name, each as it was read


@dataclass(frozen=True)
class Line:
    """A line of a split's file, from 1, with its text and why it is named."""

    split: str
    number: int
    source: str
    target: str
    note: str


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `check` names it for programs, `title` for people."""

    check: str
    title: str
    advice: str
    lines: Sequence[Line]


def sides(splits: Splits) -> Iterator[tuple[str, int, str, str]]:
    """Every sentence as split, index from 0, side and text."""
    for split, pairs in splits.items():
        for index, pair in enumerate(pairs):
            yield split, index, "source", pair.source
            yield split, index, "target", pair.target


def drawn(pairs: Sequence[Pair], most: int, *, seed: int = 1) -> list[int]:
    """The indices of at most so many pairs, rising; a file may have one domain after the other."""
    return sorted(Random(seed).sample(range(len(pairs)), min(most, len(pairs))))


def number_of(pairs: Sequence[Pair], index: int) -> int:
    """The line, from 1, that the pair with this index from 0 stands on."""
    return index + (pairs.first if isinstance(pairs, Lines) else 1)


def lines_of(splits: Splits, notes: Iterable[tuple[str, int, str]]) -> list[Line]:
    """Lines from (split, index from 0, note)."""
    return [
        Line(split, number_of(pairs, index), pairs[index].source, pairs[index].target, note)
        for split, index, note in notes
        for pairs in [splits[split]]
    ]
