"""Scores of parts of a corpus, which show what one corpus score hides.

By source length: a fixed context vector loses what a long source says; attention does not (Bahdanau
et al. 2015, figure 2). By any label of an item: how rare its words are, which domain it is from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from translate.data.plain_text import bare_words, normalise, words
from translate.evaluation.metrics import DEFAULT, Scores, chrf, part_bleu

EDGES = (5, 10, 15, 20, 30, 40)  # the longest source of each bucket but the last, in words
TOO_SHORT = "BLEU is 0 because no translation has four tokens: go by chrF"
SEEN = (1, 10, 100, 1000)  # the fewest occurrences in training of each class but the first
SEEN_LABELS = ("never", "1–9", "10–99", "100–999", "1,000 or more")
NO_WORDS = "no words"


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


@dataclass(frozen=True)
class Slice:
    """The items of one label, scored apart."""

    label: str
    items: int
    bleu: float | None  # see `part_bleu`
    chrf: float


def length(text: str) -> int:
    """The length of a sentence in words (see `words`)."""
    return len(words(text))


def by_source_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    edges: Sequence[int] = EDGES,
    *,
    tokenize: str = DEFAULT,
) -> list[Bucket]:
    """Score the items of each source-length bucket apart, shortest first, without empty ones.

    Bucket k has the sources of more than edges[k-1] and at most edges[k] words, the last all longer
    ones.
    """
    members: dict[int, list[int]] = {}
    for item, source in enumerate(sources):
        members.setdefault(bisect_left(edges, length(source)), []).append(item)
    buckets = []
    for bucket, items in sorted(members.items()):
        texts, theirs = [hypotheses[item] for item in items], [references[item] for item in items]
        buckets.append(
            Bucket(
                shortest=edges[bucket - 1] + 1 if bucket else 0,
                longest=edges[bucket] if bucket < len(edges) else None,
                items=len(items),
                source_words=fmean(length(sources[item]) for item in items),
                hypothesis_words=fmean(map(length, texts)),
                reference_words=fmean(length(text) for item in theirs for text in item),
                bleu=part_bleu(texts, theirs, tokenize=tokenize),
                chrf=chrf(texts, theirs),
            )
        )
    return buckets


def too_short(scores: Scores, buckets: Sequence[Bucket]) -> bool:
    """Tell whether the BLEU of a corpus is 0 only for want of 4-grams (see `part_bleu`)."""
    return scores.bleu.score == 0 and any(bucket.bleu is None for bucket in buckets)


def by_label(
    labels: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    order: Sequence[str] = (),
    *,
    tokenize: str = DEFAULT,
) -> list[Slice]:
    """Score the items of each label apart: in the given order, or as labels appear."""
    members: dict[str, list[int]] = {label: [] for label in order}
    for item, label in enumerate(labels):
        members.setdefault(label, []).append(item)
    slices = []
    for label, items in members.items():
        if items:
            texts = [hypotheses[item] for item in items], [references[item] for item in items]
            bleu = part_bleu(*texts, tokenize=tokenize)
            slices.append(Slice(label, len(items), bleu, chrf(*texts)))
    return slices


def word_counts(sentences: Iterable[str]) -> Counter[str]:
    """Count each word, in any case; in scripts without spaces a letter is a word."""
    return Counter(word for sentence in sentences for word in bare_words(normalise(sentence)))


def by_rarest_word(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    *,
    tokenize: str = DEFAULT,
) -> list[Slice]:
    """Score items by how often the rarest word of their source occurs in training."""
    labels = [_rarity(bare_words(normalise(source)), counts) for source in sources]
    order = (*SEEN_LABELS, NO_WORDS)
    return by_label(labels, hypotheses, references, order, tokenize=tokenize)


def _rarity(words: Sequence[str], counts: Mapping[str, int]) -> str:
    """The class of the rarest word."""
    if not words:
        return NO_WORDS
    return SEEN_LABELS[bisect_right(SEEN, min(counts.get(word, 0) for word in words))]
