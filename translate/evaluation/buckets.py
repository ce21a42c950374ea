"""Scores by source length, which show what one corpus score hides.

A fixed context vector loses what a long source says; attention does not (Bahdanau et al. 2015,
figure 2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from translate.errors import UserError
from translate.evaluation.metrics import DEFAULT, Scores, cell, chrf, part_bleu
from translate.evaluation.words import words
from translate.wording import counted

EDGES = (5, 10, 15, 20, 30, 40)  # the longest source of each bucket but the last, in words
TOO_SHORT = "BLEU is 0 because no translation has four tokens: go by chrF"


@dataclass(frozen=True)
class Bucket:
    """The items whose source length lies in [shortest, longest]; lengths are means in words."""

    shortest: int
    longest: int | None  # None: no upper bound
    items: int
    source_words: float
    hypothesis_words: float
    reference_words: float  # over all references of the bucket's items
    bleu: float | None  # see `part_bleu`
    chrf: float

    @property
    def label(self) -> str:
        """The range as a table shows it: `11–15`, or `>40` for the open one."""
        return (
            f">{self.shortest - 1}" if self.longest is None else f"{self.shortest}–{self.longest}"
        )


def length(text: str) -> int:
    """The length of a sentence in words (see `words`)."""
    return len(words(text))


def assign(lengths: Sequence[int], edges: Sequence[int] = EDGES) -> list[int]:
    """The bucket of each length: k where edges[k-1] < length <= edges[k], the last one open.

    Raises:
        UserError: edges that do not rise.
    """
    if any(low >= high for low, high in pairwise(edges)):
        raise UserError(f"length bucket edges {list(edges)} do not rise: give them in rising order")
    return [bisect_left(edges, length) for length in lengths]


def by_source_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    edges: Sequence[int] = EDGES,
    *,
    tokenize: str = DEFAULT,
) -> list[Bucket]:
    """Score the items of each source-length bucket apart, shortest first, without empty ones.

    Raises:
        UserError: counts that differ, no items, or edges that do not rise.
    """
    if not len(sources) == len(hypotheses) == len(references):
        raise UserError(
            f"{counted(len(sources), 'source')}, "
            f"{counted(len(hypotheses), 'hypothesis', 'hypotheses')} and references for "
            f"{counted(len(references), 'item')}: the three counts must be equal"
        )
    members: dict[int, list[int]] = {}
    for item, bucket in enumerate(assign(list(map(length, sources)), edges)):
        members.setdefault(bucket, []).append(item)
    return [
        _bucket(
            shortest=edges[bucket - 1] + 1 if bucket else 0,
            longest=edges[bucket] if bucket < len(edges) else None,
            sources=[sources[item] for item in items],
            hypotheses=[hypotheses[item] for item in items],
            references=[references[item] for item in items],
            tokenize=tokenize,
        )
        for bucket, items in sorted(members.items())
    ]


def _bucket(
    *,
    shortest: int,
    longest: int | None,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str,
) -> Bucket:
    return Bucket(
        shortest=shortest,
        longest=longest,
        items=len(sources),
        source_words=fmean(map(length, sources)),
        hypothesis_words=fmean(map(length, hypotheses)),
        reference_words=fmean(length(text) for item in references for text in item),
        bleu=part_bleu(hypotheses, references, tokenize=tokenize),
        chrf=chrf(hypotheses, references),
    )


def too_short(scores: Scores, buckets: Sequence[Bucket]) -> bool:
    """Whether the BLEU of a corpus is 0 for want of 4-grams alone (see `part_bleu`)."""
    return scores.bleu.score == 0 and any(bucket.bleu is None for bucket in buckets)


def bucket_rows(buckets: Sequence[Bucket]) -> tuple[list[str], list[list[str]]]:
    """Headings of a table, and the cells of a row for each bucket."""
    rows = []
    for bucket in buckets:
        means = (bucket.source_words, bucket.hypothesis_words, bucket.reference_words)
        figures = [cell(value) for value in (*means, bucket.bleu, bucket.chrf)]
        rows.append([bucket.label, f"{bucket.items:,}", *figures])
    lengths = (f"{side} length" for side in ("source", "hypothesis", "reference"))
    return ["source words", "items", *lengths, "BLEU", "chrF"], rows
