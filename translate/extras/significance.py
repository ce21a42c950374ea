"""Tests of differences between scores, from sacreBLEU's statistics.

Bootstrap: Koehn 2004. Approximate randomisation: Riezler & Maxwell 2005. Both tests are paired
and two-sided, and ask how often two systems that are equally good would differ by so much or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, variance
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.base import Metric

from translate.evaluation.metrics import (
    DEFAULT,
    METRICS,
    build_metrics,
    item_statistics,
    score_of_sum,
)

SURE = 0.05  # a difference with a smaller p-value is hardly chance
EQUAL = 1e-9  # in percent: the rounding in sums of statistics, which must not part what is tied


@dataclass(frozen=True)
class Difference:
    """One metric of a system beside the baseline's; `gain` is positive where it is better."""

    baseline: float
    score: float
    gain: float
    low: float  # the middle 95 % of the gain over resamples
    high: float
    bootstrap: float  # p-values
    randomisation: float
    bootstrap_holm: float = math.nan  # the same, adjusted for all systems (see `holm`)
    randomisation_holm: float = math.nan

    @property
    def p(self) -> float:
        """The larger of both p-values: a verdict should not depend on the choice of test."""
        return max(self.bootstrap, self.randomisation)

    @property
    def significant(self) -> bool:
        """Tell whether both tests find it too large for a chance choice of sentences."""
        return self.p < SURE


def differences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    resamples: int,
    trials: int,
    seed: int,
    tokenize: str = DEFAULT,
) -> dict[str, dict[str, Difference]]:
    """Test every system against the first, the baseline: system → metric → difference.

    p-values are adjusted over the systems, for each metric and test by itself.

    Args:
        systems: name → hypotheses, in the order of the references.
        references: of each item.
        resamples: of the paired bootstrap.
        trials: of the approximate randomisation.
        seed: of both.
        tokenize: BLEU's tokeniser.
    """
    baseline, *others = systems
    tested: dict[str, dict[str, Difference]] = {system: {} for system in others}
    for name, metric in build_metrics(tokenize).items():
        statistics = {
            system: item_statistics(metric, hypotheses, references)
            for system, hypotheses in systems.items()
        }
        for system in others:
            tested[system][name] = _difference(
                metric, METRICS[name].sign, statistics[baseline], statistics[system],
                resamples=resamples, trials=trials, seed=seed,
            )  # fmt: skip
        tests = [tested[system][name] for system in others]
        bootstrap = holm([test.bootstrap for test in tests])
        randomisation = holm([test.randomisation for test in tests])
        for system, test, *adjusted in zip(others, tests, bootstrap, randomisation, strict=True):
            tested[system][name] = replace(
                test, bootstrap_holm=adjusted[0], randomisation_holm=adjusted[1]
            )
    return tested


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, such that one or more of those below p are chance p of the time.

    Holm 1979: the smallest of n counts n times, the next n - 1 times, and none less than one
    before it. However the tests depend on each other.
    """
    adjusted, largest = list(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(adjusted)), key=adjusted.__getitem__)):
        largest = max(largest, min(1.0, (len(adjusted) - rank) * adjusted[index]))
        adjusted[index] = largest
    return adjusted


def _difference(
    metric: Metric,
    sign: int,
    baseline: Float[np.ndarray, "N K"],
    system: Float[np.ndarray, "N K"],
    *,
    resamples: int,
    trials: int,
    seed: int,
) -> Difference:
    """Both tests of one metric; a seed draws the same items for every metric and system."""
    items = len(baseline)

    def apart(first: Float[np.ndarray, "K"], second: Float[np.ndarray, "K"]) -> float:
        return score_of_sum(metric, second) - score_of_sum(metric, first)

    sums, change = (baseline.sum(0), system.sum(0)), system - baseline
    observed = apart(*sums)
    rng = np.random.default_rng(seed)
    draws = (rng.multinomial(items, np.full(items, 1 / items)) for _ in range(resamples))
    resampled = [apart(draw @ baseline, draw @ system) for draw in draws]
    low, high = np.quantile([sign * each for each in resampled], [0.025, 0.975])
    swaps = (rng.integers(2, size=items) @ change for _ in range(trials))
    shuffled = (apart(sums[0] + moved, sums[1] - moved) for moved in swaps)
    return Difference(
        baseline=score_of_sum(metric, sums[0]),
        score=score_of_sum(metric, sums[1]),
        gain=sign * observed + 0.0,  # -0.0 is none
        low=float(low) + 0.0,
        high=float(high) + 0.0,
        bootstrap=_p_value((each - observed for each in resampled), observed),
        randomisation=_p_value(shuffled, observed),
    )


def _p_value(samples: Iterable[float], observed: float) -> float:
    """The share of samples at least as far from 0 as `observed`, which itself counts as one."""
    far = [abs(sample) >= abs(observed) - EQUAL for sample in samples]
    return (sum(far) + 1) / (len(far) + 1)


class Welch(NamedTuple):
    """The result of Welch's t-test."""

    p: float
    freedom: float  # degrees of it; NaN where no seed deviates


def welch(first: Sequence[float], second: Sequence[float]) -> Welch:
    """The two-sided p-value of two means of seeds being equal (Welch 1947); two values or more.

    t = (m₁ - m₂) / √(s₁²/n₁ + s₂²/n₂), with Welch's degrees of freedom ν. p is NaN where means
    differ and no seed deviates from its own, which tells nothing of how far others would.
    """
    parts = [variance(values) / len(values) for values in (first, second)]
    apart = mean(first) - mean(second)  # exact, unlike fmean: equal values have equal means
    if not sum(parts):
        return Welch(1.0 if apart == 0 else math.nan, math.nan)
    t = abs(apart) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    return Welch(_beyond(t, freedom), freedom)


def another_seed(score: float, seeds: Sequence[float]) -> float:
    """The chance that another seed lies as far from the mean of `seeds` (two or more) as `score`.

    t = (x - m) / (s √(1 + 1/n)) with n - 1 degrees of freedom, as for a single case beside a small
    group (Crawford & Howell 1998). NaN where `score` differs and no seed deviates.
    """
    apart = abs(score - mean(seeds))
    spread = math.sqrt(variance(seeds) * (1 + 1 / len(seeds)))
    if not spread:
        return 1.0 if apart == 0 else math.nan
    return _beyond(apart / spread, len(seeds) - 1)


def _beyond(t: float, freedom: float) -> float:
    """P(|T| > t) for Student's T: with t = √ν tan θ the density is cos(θ)^(ν-1), up to a factor."""
    start, steps = math.atan(t / math.sqrt(freedom)), 20_000
    width = (math.pi / 2 - start) / steps
    middles = start + width * (np.arange(steps) + 0.5)
    factor = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    return float(2 / math.sqrt(math.pi) * factor * width * (np.cos(middles) ** (freedom - 1)).sum())
