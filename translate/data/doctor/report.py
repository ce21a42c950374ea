"""Findings for people: each with its advice and some of its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from translate.data.doctor.finding import Finding
from translate.wording import UNSEEN, escaped

WIDTH = 100  # characters of a sentence shown
INVISIBLE = (*UNSEEN, "Cf", "Cn", "Co")  # Unicode's formats, unassigned and private characters
JOINERS = "\u200c\u200d"  # of Persian letters and of emoji


def told(findings: Sequence[Finding], *, lines: int) -> Iterator[str]:
    """The findings line by line, each with at most so many of the lines it names."""
    if not findings:
        yield "nothing suspicious was found"
    for finding in findings:
        yield f"{headline(finding)}: {finding.advice}"
        for line in finding.lines[:lines]:
            yield f"  {line.split} line {line.number}  {line.note}"
            yield f"    {_cut(line.source)}"
            yield f"    {_cut(line.target)}"
        if lines and len(finding.lines) > lines:
            yield f"  … and {len(finding.lines) - lines:,} more (json=FILE lists all)"


def headline(finding: Finding) -> str:
    """What is wrong and how often, by split."""
    counts = Counter(line.split for line in finding.lines)
    places = ", ".join(f"{split} {count:,}" for split, count in counts.items())
    return f"{finding.title} ({places})"


def _cut(text: str) -> str:
    shown = escaped(text, INVISIBLE, kept=JOINERS)
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"
