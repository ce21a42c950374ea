"""Intervals and tests agree with sacreBLEU, and with exact p-values where those are known."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import UserError
from translate.evaluation.metrics import chrf, corpus_scores
from translate.extras.significance import _beyond, _p_value, another_seed, differences, holm, welch

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
        assert found["b"][metric].significant
        assert found["b"][metric].gain > 0, "better is positive, for TER too"
        assert str(found["c"][metric].gain) == "0.0", "and no -0.0"
        assert (found["c"][metric].bootstrap, found["c"][metric].randomisation) == (1, 1)
        assert not found["c"][metric].significant


def apart(one: list[str], other: list[str], references: list[list[str]], metric: str) -> float:
    left, right = (corpus_scores(text, references).by_name()[metric].score for text in (one, other))
    return right - left


def share(values: list[float], observed: float) -> float:
    return sum(abs(value) >= abs(observed) - 1e-9 for value in values) / len(values)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
@pytest.mark.parametrize("better", [1, 3])
def test_randomisation_agrees_with_all_swaps_of_the_two_systems(better: int, metric: str) -> None:
    """Slow twin: of all 2^n swaps of hypotheses, the share that differ by as much, or more."""
    references, one = REFERENCES[:6], WRONG[:6]
    other = [*RIGHT[:better], *WRONG[better:6]]
    observed = apart(one, other, references, metric)
    swaps = []
    for swap in product((False, True), repeat=better):  # the others are equal
        left = [b if s else a for a, b, s in zip(one, other, swap, strict=False)] + one[better:]
        right = [a if s else b for a, b, s in zip(one, other, swap, strict=False)] + one[better:]
        swaps.append(apart(left, right, references, metric))
    exact = share(swaps, observed)
    assert exact >= 2 * 0.5**better
    found = differences({"a": one, "b": other}, references, resamples=1, trials=1500, seed=1)
    assert found["b"][metric].randomisation == pytest.approx(exact, abs=0.04)


def test_the_bootstrap_agrees_with_all_resamples() -> None:
    """Slow twin: of all n^n resamples, the share that move the difference by as much as it is.

    And the middle 95 % of the gain over all of them.
    """
    one, other, references = WRONG[:4], [*RIGHT[:2], *WRONG[2:4]], REFERENCES[:4]

    def gain(items: tuple[int, ...]) -> float:
        chosen = [references[i] for i in items]
        return chrf([other[i] for i in items], chosen) - chrf([one[i] for i in items], chosen)

    observed = gain((0, 1, 2, 3))
    gains = [gain(drawn) for drawn in product(range(4), repeat=4)]
    exact = share([one - observed for one in gains], observed)
    found = differences({"a": one, "b": other}, references, resamples=1500, trials=1, seed=1)
    assert 0.05 < exact < 0.9
    assert found["b"]["chrf"].bootstrap == pytest.approx(exact, abs=0.04)
    interval = found["b"]["chrf"].low, found["b"]["chrf"].high
    assert interval == pytest.approx(np.quantile(gains, [0.025, 0.975]), abs=0.5)


def test_a_gain_in_ter_lies_in_its_interval() -> None:
    found = differences({"a": MIXED, "b": RIGHT, "c": MIXED}, REFERENCES, **HOW)
    for metric in ("bleu", "chrf", "ter"):
        better, equal = found["b"][metric], found["c"][metric]
        assert 0 < better.low < better.gain < better.high
        assert (equal.low, equal.high) == (0, 0)
        assert better.bootstrap_holm == pytest.approx(2 * better.bootstrap)
        assert equal.randomisation_holm == 1


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0.001, 0.999))
def test_adjusted_p_values_are_those_that_holm_rejects(p_values: list[float], alpha: float) -> None:
    """Slow twin: reject the smallest while it is below α by the number of those that are left."""
    rejected = 0
    for p in sorted(p_values):
        if (len(p_values) - rejected) * p > alpha:
            break
        rejected += 1
    assert sum(p <= alpha for p in holm(p_values)) == rejected
    assert sorted(holm(p_values)) == holm(sorted(p_values))


def test_rounding_parts_no_ties() -> None:
    observed = 0.1 + 0.2  # 0.30000000000000004
    assert _p_value([0.3, -0.3], observed) == 1.0


def test_few_sentences_that_differ_are_no_real_difference() -> None:
    """Three of 200 differ: a quarter of the shuffles differ by as much, none by more."""
    references = REFERENCES * 12 + REFERENCES[:8]
    one = WRONG * 12 + WRONG[:8]
    found = differences({"a": one, "b": [*RIGHT[:3], *one[3:]]}, references, **HOW)["b"]
    for metric in ("bleu", "chrf", "ter"):
        assert found[metric].randomisation == pytest.approx(0.25, abs=0.07)
        assert not found[metric].significant
    single = differences({"a": WRONG[:1], "b": RIGHT[:1]}, REFERENCES[:1], **HOW)["b"]
    assert [each.randomisation for each in single.values()] == [1, 1, 1]


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
    assert welch([3, 4, 4, 5, 5], [2, 3, 1, 2, 2]) == pytest.approx((0.0022, 7.784), abs=1e-3)
    assert welch([1, 2, 3], [1, 2, 3]).p == pytest.approx(1)
    assert welch([5, 5], [5, 5]).p == 1
    assert math.isnan(welch([5, 5], [6, 6]).p)  # no seed tells how far others would be


def test_a_score_lies_as_far_from_the_seeds_as_another_seed_would() -> None:
    """Slow twin: of groups drawn alike, the share whose last lies as far from the others."""
    seeds, score = [30.0, 31.0, 33.0], 36.0
    t = (score - np.mean(seeds)) / (np.std(seeds, ddof=1) * math.sqrt(4 / 3))
    *drawn, last = np.random.default_rng(1).normal(size=(4, 200_000))
    others = np.array(drawn)
    apart = (last - others.mean(0)) / (others.std(0, ddof=1) * math.sqrt(4 / 3))
    assert another_seed(score, seeds) == pytest.approx((abs(apart) >= t).mean(), abs=0.003)
    assert another_seed(5, [5, 5]) == 1
    assert math.isnan(another_seed(6, [5, 5]))


@given(st.floats(0, 100), st.integers(2, 7), st.integers(2, 7))
def test_equal_values_are_equal_by_welch_however_many(value: float, some: int, more: int) -> None:
    assert welch([value] * some, [value] * more).p == 1
