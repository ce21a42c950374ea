"""What may be wrong with parallel text, found before a model learns it.

A check takes the splits as they were read, before any cleaning, and gives findings; a finding names
lines. Checks look for what is rare in a corpus that is mostly right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from translate.data.doctor import characters, languages, lengths, misaligned, overlap
from translate.data.doctor.finding import Finding
from translate.data.pair import Pair

Check = Callable[[Mapping[str, Sequence[Pair]]], Iterable[Finding]]


def quick_checks(*, allow_overlap: bool) -> tuple[Check, ...]:
    """The checks that one reading of the text affords."""
    return (
        lengths.empty,
        overlap.duplicates,
        overlap.LiteralOverlap(allow_one_side=allow_overlap),
        characters.anomalies,
        lengths.outliers,
        languages.swapped_sides,
    )


def all_checks(*, source: str, target: str, allow_overlap: bool) -> tuple[Check, ...]:
    """Every check; `source` and `target` are the languages by their codes."""
    return (
        *quick_checks(allow_overlap=allow_overlap),
        overlap.near,
        misaligned.misaligned,
        languages.OtherLanguages(source, target),
    )


def examine(splits: Mapping[str, Sequence[Pair]], checks: Iterable[Check]) -> list[Finding]:
    """All findings that name a line, in the order of the checks."""
    return [finding for check in checks for finding in check(splits) if finding.lines]
