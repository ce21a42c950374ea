"""Confidence is learned from sentences, and judged on others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from translate.errors import UserError
from translate.extras.calibration import judge, learn


def drawn(count: int, slope: float, intercept: float):
    """Evidence, and good or not by a known curve."""
    generator = np.random.default_rng(1)
    x = generator.normal(-1, 0.5, count)
    good = generator.random(count) < 1 / (1 + np.exp(-(slope * x + intercept)))
    return x.tolist(), good.tolist()


def test_it_is_the_likeliest_curve() -> None:
    """Slow twin: the loss is higher wherever one looks around it."""
    x, good = drawn(200, 2.0, 1.0)
    hits = sum(good)

    def loss(slope: float, intercept: float) -> float:
        total = 0.0
        for one, hit in zip(x, good, strict=True):
            p = 1 / (1 + math.exp(-(slope * one + intercept)))
            target = (hits + 1) / (hits + 2) if hit else 1 / (len(x) - hits + 2)
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        return total

    slope, intercept = learn(x, good)
    for a in (-0.01, 0.01):
        assert loss(slope, intercept) < loss(slope + a, intercept)
        assert loss(slope, intercept) < loss(slope, intercept + a)


def test_what_can_be_told_apart_without_fail_gives_a_finite_curve() -> None:
    slope, intercept = learn([-2.0] * 10 + [-1.0] * 10, [False] * 10 + [True] * 10)
    assert 0 < slope < 20
    assert math.isfinite(intercept)


@pytest.mark.parametrize("hits", [9, 91])
def test_too_few_of_a_kind_are_told(hits: int) -> None:
    with pytest.raises(UserError, match=f"{hits} of 100 translations are good.*choose another"):
        learn([-1.0] * 100, [True] * hits + [False] * (100 - hits))


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ([-0.3] * 40, "equally probable"),
        ([-1e3, *[0.0] * 39], "less probable translations are better"),
    ],
)
def test_evidence_that_tells_nothing_is_told(evidence: list[float], message: str) -> None:
    with pytest.raises(UserError, match=f"{message}.*choose another chrF"):
        learn(evidence, [True] * 20 + [False] * 20)


def test_figures_of_a_small_set() -> None:
    chrf = [90.0, 80.0, 30.0, 70.0, 10.0, 60.0, 20.0, 55.0, 40.0, 51.0]
    found = judge([0.9, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9], chrf, good=50)
    assert (found.sentences, found.good) == (10, 0.6)
    assert found.expected == pytest.approx(0.58)
    assert found.calibration_error == pytest.approx(0.1)
    assert found.brier == pytest.approx(0.01)
    assert found.brier_of_share == pytest.approx(0.24)
    assert judge(chrf, chrf, good=50).rank_correlation == pytest.approx(1)
    assert judge([0.5] * 10, chrf, good=50).rank_correlation == 0
    assert judge([0.9] * 10, chrf, good=51).good == 0.6  # from there on


def test_the_order_of_equally_sure_sentences_does_not_matter() -> None:
    said, chrf = [0.5] * 20 + [0.9] * 20, [90.0] * 10 + [10.0] * 10 + [90.0] * 18 + [10.0] * 2
    assert judge(said, chrf, good=50).calibration_error == pytest.approx(0)
    shuffled = np.random.default_rng(0).permutation(40)
    mixed = judge([said[i] for i in shuffled], [chrf[i] for i in shuffled], good=50)
    assert mixed == pytest.approx(judge(said, chrf, good=50))


def test_the_calibration_error_is_that_of_tenths_of_rising_confidence() -> None:
    """Slow twin, of 23 sentences in no order: three tenths have three of them, the others two."""
    random = np.random.default_rng(4)
    said, chrf = random.random(23).tolist(), random.uniform(0, 100, 23).tolist()
    rising = sorted(range(23), key=said.__getitem__)
    expected = 0.0
    for size in [3] * 3 + [2] * 7:
        tenth, rising = rising[:size], rising[size:]
        expected += abs(sum(said[i] - (chrf[i] >= 50) for i in tenth)) / 23
    assert judge(said, chrf, good=50).calibration_error == pytest.approx(expected)
