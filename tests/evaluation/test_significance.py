"""Intervals and paired tests: against enumeration, and in cases where the answer is known."""

from __future__ import annotations

import os
from itertools import product

import pytest

from translate.errors import UserError
from translate.evaluation.metrics import chrf
from translate.evaluation.significance import _beyond, differences, intervals, welch

ANIMALS = ("dog", "cat")
REFERENCES = [[f"the {animal} sees a house number {i}"] for i in range(8) for animal in ANIMALS]
RIGHT = [item[0] for item in REFERENCES]
WRONG = [text.replace("sees", "eats").replace("house", "mouse") for text in RIGHT]
MIXED = [(WRONG if i % 3 else RIGHT)[i] for i in range(16)]
HOW = {"resamples": 200, "trials": 400, "seed": 7}


def test_a_clear_difference_is_real_and_none_is_not() -> None:
    found = differences({"a": WRONG, "b": RIGHT, "c": WRONG}, REFERENCES, **HOW)
    assert list(found) == ["b", "c"]
    for metric in ("bleu", "chrf", "ter"):
        assert found["b"][metric].real
        assert found["b"][metric].gain > 0, "better is positive, for TER too"
        assert found["c"][metric].gain == 0
        assert (found["c"][metric].bootstrap, found["c"][metric].randomisation) == (1, 1)
        assert not found["c"][metric].real


def test_randomisation_agrees_with_all_swaps_of_the_two_systems() -> None:
    """The exact p-value: the share of all 2^n swaps of hypotheses that differ by more."""
    references = REFERENCES[:7]
    one = [RIGHT[0], RIGHT[1], WRONG[2], RIGHT[3], WRONG[4], RIGHT[5], WRONG[6]]
    other = [WRONG[0], WRONG[1], RIGHT[2], WRONG[3], WRONG[4], WRONG[5], RIGHT[6]]

    def apart(swap: tuple[bool, ...]) -> float:
        left = [b if s else a for a, b, s in zip(one, other, swap, strict=True)]
        right = [a if s else b for a, b, s in zip(one, other, swap, strict=True)]
        return abs(chrf(left, references) - chrf(right, references))

    observed = apart((False,) * 7)
    swaps = [apart(swap) for swap in product((False, True), repeat=7)]
    exact = sum(value > observed + 1e-9 for value in swaps) / len(swaps)
    found = differences({"a": one, "b": other}, references, resamples=10, trials=4000, seed=1)
    assert 0.05 < exact < 0.9
    assert found["b"]["chrf"].randomisation == pytest.approx(exact, abs=0.04)


def test_the_seed_decides_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    systems = {"a": MIXED, "b": [*RIGHT[:7], *WRONG[7:]]}
    first, again, other = (
        differences(systems, REFERENCES, resamples=50, trials=50, seed=seed)["b"]["bleu"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert os.environ["SACREBLEU_SEED"] == "99"


def test_intervals_are_around_the_score_and_narrower_with_more_sentences() -> None:
    few = intervals(MIXED, REFERENCES, resamples=300, seed=3)
    many = intervals(MIXED * 9, REFERENCES * 9, resamples=300, seed=3)
    for metric, found in few.items():
        assert found.half_width > 2 * many[metric].half_width > 0
        assert "bs:300|seed:3" in found.signature
    assert few["chrf"].mean == pytest.approx(chrf(MIXED, REFERENCES), abs=few["chrf"].half_width)


def test_missing_references_take_no_part() -> None:
    with_two = [[*item, "another sentence"][: 1 + i % 2] for i, item in enumerate(REFERENCES)]
    found = differences({"a": WRONG, "b": RIGHT}, with_two, **HOW)["b"]["bleu"]
    assert found.score == pytest.approx(100)


def test_counts_that_differ_are_told() -> None:
    with pytest.raises(UserError, match="15 hypotheses but references for 16"):
        differences({"a": RIGHT, "b": RIGHT[:-1]}, REFERENCES, **HOW)


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [(12.7062, 1, 0.05), (2.77645, 4, 0.05), (4.60409, 4, 0.01), (1.98397, 100, 0.05), (0, 3, 1)],
)
def test_students_t_is_that_of_the_tables(t: float, freedom: float, p: float) -> None:
    assert _beyond(t, freedom) == pytest.approx(p, rel=1e-3)


def test_welch_is_that_of_a_textbook() -> None:
    # t = 2.2 / √(0.7/5 + 0.5/5) = 4.49 with 7.78 degrees of freedom
    assert welch([3, 4, 4, 5, 5], [2, 3, 1, 2, 2]) == pytest.approx(0.0022, abs=1e-4)
    assert welch([1, 2, 3], [1, 2, 3]) == pytest.approx(1)
    assert welch([5, 5], [5, 5]) == 1
    assert welch([5, 5], [6, 6]) == 0
