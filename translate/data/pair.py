"""Sentences with their translations: as text to learn from, and as items to be scored on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

# (source word, target word), counted from 0 over words between spaces
Links = tuple[tuple[int, int], ...]


class Pair(NamedTuple):
    """A sentence and one translation.

    `group` is a book or a domain that it belongs to, `alignment` gold links.
    """

    source: str
    target: str
    group: str = ""
    alignment: Links = ()


class Lines(list[Pair]):
    """The pairs of a file, a line each; above the line `first` stands its header."""

    def __init__(self, pairs: Iterable[Pair], *, first: int) -> None:
        super().__init__(pairs)
        self.first = first


class Item(NamedTuple):
    """What is scored: a source sentence with all its references.

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
