"""Words, and scores by source length and by label: which items a part has, in what order."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.evaluation.breakdown import by_label, by_rarest_word, by_source_length, word_counts
from translate.evaluation.metrics import bleu, chrf
from translate.extras.report_tables import bucket_rows, slice_rows

edges = st.lists(st.integers(0, 60), max_size=6, unique=True).map(sorted)
lengths = st.lists(st.integers(0, 80), min_size=1, max_size=12)


@given(lengths=lengths, edges=edges)
def test_buckets_part_the_items_and_keep_the_mean_length(
    lengths: list[int], edges: list[int]
) -> None:
    sources = [" ".join(["w"] * length) for length in lengths]
    buckets = by_source_length(
        sources, ["a b"] * len(sources), [["a", "a b c"]] * len(sources), edges
    )
    assert sum(bucket.items for bucket in buckets) == len(lengths)
    total = sum(bucket.items * bucket.source_words for bucket in buckets)
    assert total == pytest.approx(sum(lengths))
    bounds = [-1, *edges, 10**9]
    for bucket in buckets:
        own = [length for length in lengths if bucket.shortest <= length]
        own = [length for length in own if bucket.longest is None or length <= bucket.longest]
        assert len(own) == bucket.items
        assert bucket.shortest - 1 in bounds
        assert (bucket.hypothesis_words, bucket.reference_words) == (2, 2)
    for earlier, later in pairwise(buckets):
        assert earlier.longest is not None
        assert earlier.longest < later.shortest


def test_a_bucket_scores_its_own_items() -> None:
    short, long = "one two three four", " ".join(["word"] * 25)
    sources = [short, long, short]
    hypotheses = ["a b c d", "x y", "a b c e"]
    references = [["a b c d"], ["l m n o p"], ["a b c d", "e"]]
    low, high = by_source_length(sources, hypotheses, references)
    assert (low.items, high.items) == (2, 1)
    assert low.bleu == bleu([hypotheses[0], hypotheses[2]], [references[0], references[2]])
    assert (low.label, high.label, high.bleu) == ("0–5", "21–30", 0)
    assert high.source_words == 25


def test_a_bucket_without_four_tokens_in_a_translation_has_no_bleu() -> None:
    """However good it is; where nothing matches, 0 says what it should."""
    sources, references = ["s", "s " * 8, "s " * 12], [["a b"], ["a b c d e"], ["c d"]]
    hypotheses = ["a b", "a b c d e", "e"]
    buckets = by_source_length(sources, hypotheses, references)
    assert [bucket.bleu for bucket in buckets] == [None, pytest.approx(100), 0]
    headings, rows = bucket_rows(buckets)
    assert [row[-2:] for row in rows] == [["–", "100.0"], ["100.0", "100.0"], ["0.0", "0.0"]]
    assert [row[:3] for row in rows] == [
        ["0–5", "1", "1.0"],
        ["6–10", "1", "8.0"],
        ["11–15", "1", "12.0"],
    ]
    assert headings[2:5] == ["source length", "hypothesis length", "reference length"]
    labelled = by_label(["a", "b", "c"], hypotheses, references)
    assert [part.bleu for part in labelled] == [bucket.bleu for bucket in buckets]
    assert [row[2] for row in slice_rows(labelled)[1]] == ["–", "100.0", "0.0"]


def test_one_bucket_of_everything_is_the_corpus_score() -> None:
    hypotheses, references = ["a b c d", "e f g"], [["a b c e"], ["e f g h"]]
    (only,) = by_source_length(["s", "s s s"], hypotheses, references, edges=())
    assert only.bleu == bleu(hypotheses, references)
    assert only.longest is None


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
