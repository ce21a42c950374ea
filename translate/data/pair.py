"""Sentences with their translations: as text to learn from, and as items to be scored on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

Links = tuple[
    tuple[int, int], ...
]  # (source word, target word), counted from 0 over words between spaces


class Pair(NamedTuple):
    """A sentence and one translation; `group` is a book it belongs to, `alignment` gold links."""

    source: str
    target: str
    group: str = ""
    alignment: Links = ()


class Item(NamedTuple):
    """What is scored: a source sentence with all its references (`alignment` is the first's)."""

    source: str
    references: tuple[str, ...]
    alignment: Links = ()


def items(pairs: Iterable[Pair]) -> list[Item]:
    """One item a distinct source sentence, sentences and references in order of appearance."""
    found: dict[str, dict[str, Links]] = defaultdict(dict)
    for pair in pairs:
        found[pair.source].setdefault(pair.target, pair.alignment)
    return [
        Item(source, tuple(targets), next(iter(targets.values())))
        for source, targets in found.items()
    ]
