"""What may be wrong with parallel text, found before a model learns it.

A check takes the splits as they were read, before any cleaning, and gives findings; a finding names
lines. Checks look for what is rare in a corpus that is mostly right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from translate.data.doctor import characters, languages, lengths, misaligned, overlap
from translate.data.doctor.finding import Finding, Splits

Check = Callable[[Splits], Iterable[Finding]]

QUICK = 5_000  # pairs of each split that a quick look takes in


def all_checks(*, codes: tuple[str, str] | None, allow_overlap: bool) -> list[Check]:
    """Every check; `codes` are those of source and target, if they are of one language each."""
    found: list[Check] = [
        lengths.empty,
        languages.copies,
        overlap.duplicates,
        partial(overlap.literal, allow_one_side=allow_overlap),
        overlap.near,
        characters.anomalies,
        characters.quoted,
        lengths.outliers,
        languages.swapped_sides,
        misaligned.misaligned,
    ]
    return [*found, partial(languages.other_languages, codes=codes)] if codes else found


def quick_look(splits: Splits) -> list[Finding]:
    """What the first lines show of mistakes that cleaning does not look for, or not there."""
    checks: tuple[Check, ...] = (
        characters.anomalies, characters.quoted, lengths.outliers, languages.swapped_sides
    )  # fmt: skip
    first = {split: pairs[:QUICK] for split, pairs in splits.items()}
    uncleaned = {split: pairs for split, pairs in first.items() if split != "train"}
    return examine(uncleaned, (lengths.empty, languages.copies)) + examine(first, checks)


def examine(splits: Splits, checks: Iterable[Check]) -> list[Finding]:
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
