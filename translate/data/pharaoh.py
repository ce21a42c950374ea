"""Word alignments as text, a line a pair: `0-0 1-2 2p3`, source and target positions from 0.

`i-j` is a sure link; `ipj` and `i?j` are possible ones, which annotators could not agree on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from translate.data.text import read_lines
from translate.errors import UserError
from translate.wording import counted

Link = tuple[int, int]  # (source word, target word)

LINK = re.compile(r"([0-9]+)([-p?])([0-9]+)")


class Gold(NamedTuple):
    """The links of one pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # without the sure ones


def to_line(links: Iterable[Sequence[int]]) -> str:
    """Links in order of source, then target: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in sorted((i, j) for i, j in links))


def from_line(line: str, place: str = "links") -> Gold:
    """Links of one line; `place` is where it stands.

    Raises:
        UserError: something that is no link.
    """
    found: dict[str, set[Link]] = {"-": set(), "p": set(), "?": set()}
    for word in line.split():
        match = LINK.fullmatch(word)
        if match is None:
            raise UserError(
                f"{place}: {word!r} is not a link: write i-j (sure), ipj or i?j (possible), with "
                "the positions of a source and a target word, counted from 0"
            )
        found[match[2]].add((int(match[1]), int(match[3])))
    return Gold(frozenset(found["-"]), frozenset((found["p"] | found["?"]) - found["-"]))


def read_links(path: str | Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    """The links of the pairs of `sources` and `targets`, line by line.

    Raises:
        UserError: another number of lines than pairs, something that is no link, or a link to a
            word that the pair does not have.
    """
    lines = list(read_lines(path))
    if len(lines) != len(sources):
        raise UserError(
            f"{path} has {counted(len(lines), 'line')} for {counted(len(sources), 'pair')} of "
            "sentences: line n must hold the links of pair n"
        )
    pairs = zip(lines, sources, targets, strict=True)
    return [_checked(*pair, f"{path}, line {n}") for n, pair in enumerate(pairs, start=1)]


def _checked(line: str, source: str, target: str, place: str) -> Gold:
    gold = from_line(line, place)
    sizes = len(source.split()), len(target.split())
    for link in sorted(gold.sure | gold.possible):
        for side, position, size in zip(("source", "target"), link, sizes, strict=True):
            if position >= size:
                there = f"words 0 to {size - 1}" if size else "no words"
                raise UserError(
                    f"{place}: {link[0]}-{link[1]} links a {side} word {position}, but that "
                    f"sentence has {there}: positions count from 0, and words are separated by "
                    "spaces"
                )
    return gold
