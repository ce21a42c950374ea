"""TER is sacreBLEU's, and bounded in time where a line is long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.ter import TER

from translate.evaluation import ter
from translate.evaluation.metrics import build_ter, evaluate
from translate.evaluation.sentences import sentence_scores
from translate.evaluation.significance import intervals
from translate.evaluation.ter import LONGEST, edits

WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


def levenshtein(first: Sequence[str], second: Sequence[str]) -> int:
    """The slow twin: the whole matrix."""
    row = list(range(len(second) + 1))
    for number, word in enumerate(first, start=1):
        above, row = row, [number]
        for j, other in enumerate(second):
            row.append(min(row[-1] + 1, above[j + 1] + 1, above[j] + (word != other)))
    return row[-1]


@given(WORDS, WORDS)
def test_edits_are_the_fewest(first: list[str], second: list[str]) -> None:
    assert edits(first, second) == levenshtein(first, second)


@given(WORDS, WORDS)
def test_a_narrow_band_finds_no_fewer_and_never_more_than_all(
    first: list[str], second: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ter, "LONGEST", 2)
        assert levenshtein(first, second) <= edits(first, second) <= max(len(first), len(second))


def test_up_to_the_longest_sentence_ter_is_sacrebleus() -> None:
    reference = " ".join(map(str, range(LONGEST)))
    shifted = " ".join(map(str, [*range(9, 30), *range(9), *range(30, LONGEST)]))
    found = build_ter("13a").sentence_score(shifted, [reference])
    assert found.score == TER().sentence_score(shifted, [reference]).score == 100 / LONGEST


def test_a_longer_sentence_is_edited_without_shifts_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference = " ".join(map(str, range(LONGEST + 1)))
    shifted = " ".join(map(str, [*range(9, LONGEST + 1), *range(9)]))
    hypotheses, references = [shifted, "a b"], [[reference, "1"], ["a b"]]
    scores = evaluate(hypotheses, references)
    assert scores.ter.score == pytest.approx(100 * 18 / ((LONGEST + 2) / 2 + 2))
    assert "|shifts:≤250words|" in scores.ter.signature
    assert "TER counts no shifts in 1 of 2 sentences" in caplog.text
    assert "shifts" not in evaluate(["a b"], [["a b"]]).ter.signature
    found = intervals(hypotheses, references, resamples=2, seed=1)["ter"]
    assert "|shifts:≤250words|" in found.signature
    assert sentence_scores(hypotheses, references)[0].ter == pytest.approx(3600 / (LONGEST + 2))


def test_a_megabyte_is_scored() -> None:
    """sacreBLEU takes more than 40 s for 500 words of each."""
    generator = random.Random(1)
    hypothesis, reference = (generator.choices("abcdefgh", k=20_000) for _ in range(2))
    found = build_ter("13a").sentence_score(" ".join(hypothesis), [" ".join(reference)])
    assert 50 < found.score < 100


def test_a_sentence_is_searched_for_shifts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many figures are made of it."""
    searched: list[str] = []
    original = TER._compute_segment_statistics

    def count(self: TER, hypothesis: str, references: Any) -> Any:
        searched.append(hypothesis)
        return original(self, hypothesis, references)

    monkeypatch.setattr(TER, "_compute_segment_statistics", count)
    ter._with_shifts.cache_clear()
    hypotheses, references = ["a b c d", "b a c"], [["b a c d"], ["b a c", "a c"]]
    evaluate(hypotheses, references)
    intervals(hypotheses, references, resamples=10, seed=1)
    sentence_scores(hypotheses, references)
    assert sorted(searched) == sorted(hypotheses)
