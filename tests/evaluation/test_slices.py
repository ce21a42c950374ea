"""Scores by label: which items a slice has, and in what order."""

from __future__ import annotations

import unicodedata

import pytest

from translate.evaluation.metrics import bleu, chrf
from translate.evaluation.slices import by_label, by_rarest_word, slice_rows, word_counts

SOURCES = ["der Hund", "der seltene Hund", "das Neue", "", "Der HUND"]
HYPOTHESES = ["the dog", "the dog", "the new", "", "dog"]
REFERENCES = [["the dog"], ["the rare dog"], ["the novelty", "the new"], ["x"], ["the dog"]]


def test_the_rarest_word_decides_and_case_does_not() -> None:
    counts = word_counts(["der Hund, der Hund"] * 6 + ["seltene das"])
    assert (counts["hund"], counts["seltene"]) == (12, 1)
    found = by_rarest_word(SOURCES, HYPOTHESES, REFERENCES, counts, tokenize="char")
    assert [(part.label, part.items) for part in found] == [
        ("never", 1),  # `Neue`
        ("1–9", 1),
        ("10–99", 2),
        ("no words", 1),
    ]
    for part, items in zip(found[:3], ([2], [1], [0, 4]), strict=True):
        own = [HYPOTHESES[i] for i in items], [REFERENCES[i] for i in items]
        assert (part.bleu, part.chrf) == (bleu(*own, tokenize="char"), chrf(*own))
        assert part.bleu > 0  # of so few words it would be 0


def test_a_word_is_known_however_its_characters_are_written() -> None:
    counts = word_counts(["el niño está aquí"] * 20)
    sources = [unicodedata.normalize("NFD", "el niño está aquí"), "el ni\u00adño está aquí"]
    found = by_rarest_word(sources, ["x"] * 2, [["x"]] * 2, counts)
    assert [(part.label, part.items) for part in found] == [("10–99", 2)]


def test_domains_come_as_they_appear() -> None:
    found = by_label(["news", "talk", "news", "talk", "news"], HYPOTHESES, REFERENCES)
    assert [(part.label, part.items) for part in found] == [("news", 3), ("talk", 2)]
    assert by_label([], [], []) == []


def test_a_sentence_of_signs_has_no_word_that_training_could_have_seen() -> None:
    found = by_rarest_word(["...", "Hund", ""], ["..."] * 3, [["..."]] * 3, {"hund": 1})
    assert [(part.label, part.items) for part in found] == [("1–9", 1), ("no words", 2)]


def test_a_label_without_four_tokens_in_a_translation_has_no_bleu() -> None:
    found = by_label(["a", "b"], ["x y", "x y z w"], [["x y"], ["x y z w"]])
    assert [part.bleu for part in found] == [None, pytest.approx(100)]
    assert [row[2] for row in slice_rows(found)[1]] == ["–", "100.0"]
