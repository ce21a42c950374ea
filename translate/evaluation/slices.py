"""Scores by any label of an item: how rare its words are, which domain it is from."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from translate.data.text import normalise
from translate.evaluation.metrics import DEFAULT, cell, chrf, part_bleu
from translate.evaluation.words import bare_words

SEEN = (1, 10, 100, 1000)  # the fewest occurrences in training of each class but the first
SEEN_LABELS = ("never", "1–9", "10–99", "100–999", "1,000 or more")
NO_WORDS = "no words"


@dataclass(frozen=True)
class Slice:
    """The items of one label, scored apart."""

    label: str
    items: int
    bleu: float | None  # see `part_bleu`
    chrf: float


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
    return [
        Slice(
            label,
            len(chosen),
            part_bleu(*_chosen(chosen, hypotheses, references), tokenize=tokenize),
            chrf(*_chosen(chosen, hypotheses, references)),
        )
        for label, chosen in members.items()
        if chosen
    ]


def _chosen(
    items: Sequence[int], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[str], list[Sequence[str]]]:
    return [hypotheses[item] for item in items], [references[item] for item in items]


def word_counts(sentences: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in any case; in scripts without spaces a letter is a word."""
    return Counter(word for sentence in sentences for word in _words(sentence))


def by_rarest_word(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    *,
    tokenize: str = DEFAULT,
) -> list[Slice]:
    """Score items by how often the rarest word of their source occurs in training."""
    labels = [_rarity(_words(source), counts) for source in sources]
    order = (*SEEN_LABELS, NO_WORDS)
    return by_label(labels, hypotheses, references, order, tokenize=tokenize)


def _rarity(words: Sequence[str], counts: Mapping[str, int]) -> str:
    """The class of the rarest word."""
    if not words:
        return NO_WORDS
    return SEEN_LABELS[bisect_right(SEEN, min(counts.get(word, 0) for word in words))]


def slice_rows(slices: Sequence[Slice]) -> tuple[list[str], list[list[str]]]:
    """Headings of a table, and the cells of a row for each slice."""
    rows = [[s.label, f"{s.items:,}", cell(s.bleu), cell(s.chrf)] for s in slices]
    return ["", "items", "BLEU", "chrF"], rows


def _words(sentence: str) -> list[str]:
    return bare_words(normalise(sentence))
