"""What may be wrong with parallel text, found before a model learns it.

A check takes the splits as they were read, before any cleaning, and gives findings; a finding names
lines. Checks look for what is rare in a corpus that is mostly right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from translate.data.doctor import characters, languages, lengths, misaligned, overlap
from translate.data.doctor.finding import Finding
from translate.data.pair import Pair

Check = Callable[[Mapping[str, Sequence[Pair]]], Iterable[Finding]]


QUICK = 5_000  # pairs of each split that a quick look takes in


def all_checks(*, source: str, target: str, allow_overlap: bool) -> tuple[Check, ...]:
    """Every check; `source` and `target` are the languages by their codes."""
    return (
        lengths.empty,
        languages.copies,
        overlap.duplicates,
        overlap.LiteralOverlap(allow_one_side=allow_overlap),
        overlap.near,
        characters.anomalies,
        characters.quoted,
        lengths.outliers,
        languages.swapped_sides,
        misaligned.misaligned,
        languages.OtherLanguages(source, target),
    )


def quick_look(splits: Mapping[str, Sequence[Pair]]) -> list[Finding]:
    """What the first lines show of mistakes that cleaning does not look for, or not there."""
    checks: tuple[Check, ...] = (
        characters.anomalies, characters.quoted, lengths.outliers, languages.swapped_sides
    )  # fmt: skip
    first = {split: pairs[:QUICK] for split, pairs in splits.items()}
    uncleaned = {split: pairs for split, pairs in first.items() if split != "train"}
    return examine(uncleaned, (lengths.empty, languages.copies)) + examine(first, checks)


def examine(splits: Mapping[str, Sequence[Pair]], checks: Iterable[Check]) -> list[Finding]:
    """All findings that name a line, in the order of the checks."""
    return [finding for check in checks for finding in check(splits) if finding.lines]


def of_extra(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """What was found in training text that is the further corpus `name`, under this name."""
    named = [
        replace(finding, lines=[
            replace(line, split=f"extra.{name}") for line in finding.lines if line.split == "train"
        ])
        for finding in findings
    ]  # fmt: skip
    return [finding for finding in named if finding.lines]
