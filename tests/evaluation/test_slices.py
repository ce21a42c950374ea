"""Scores by label: which items a slice has, and in what order."""

from __future__ import annotations

from translate.evaluation.metrics import bleu, chrf
from translate.evaluation.slices import by_label, by_rarest_word, word_counts

SOURCES = ["der Hund", "der seltene Hund", "das Neue", "", "Der HUND"]
HYPOTHESES = ["the dog", "the dog", "the new", "", "dog"]
REFERENCES = [["the dog"], ["the rare dog"], ["the novelty", "the new"], ["x"], ["the dog"]]


def test_the_rarest_word_decides_and_case_does_not() -> None:
    counts = word_counts(["der Hund, der Hund"] * 6 + ["seltene das"])
    assert (counts["hund"], counts["seltene"]) == (12, 1)
    found = by_rarest_word(SOURCES, HYPOTHESES, REFERENCES, counts, tokenize="char")
    assert [(part.label, part.items) for part in found] == [
        ("never", 2),  # `Neue`, and a sentence without a word
        ("1–9", 1),
        ("10–99", 2),
    ]
    for part, items in zip(found, ([2, 3], [1], [0, 4]), strict=True):
        own = [HYPOTHESES[i] for i in items], [REFERENCES[i] for i in items]
        assert (part.bleu, part.chrf) == (bleu(*own, tokenize="char"), chrf(*own))
        assert part.bleu > 0  # of so few words it would be 0


def test_domains_come_as_they_appear() -> None:
    found = by_label(["news", "talk", "news", "talk", "news"], HYPOTHESES, REFERENCES)
    assert [(part.label, part.items) for part in found] == [("news", 3), ("talk", 2)]
    assert by_label([], [], []) == []
