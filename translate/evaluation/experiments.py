"""Runs that differ in their seed alone, together: the mean and the deviation of each metric."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from translate.evaluation.metrics import METRICS
from translate.evaluation.significance import holm, welch

if TYPE_CHECKING:
    from translate.evaluation.comparison import Column


@dataclass(frozen=True)
class Experiment:
    """Several seeds of one configuration; mean and standard deviation of each metric."""

    name: str
    runs: Sequence[str]
    means: Mapping[str, float]
    deviations: Mapping[str, float]


@dataclass(frozen=True)
class ExperimentPair:
    """Two experiments by one metric, tested by Welch's t-test over their seeds."""

    first: str
    second: str
    metric: str
    gain: float  # of the second's mean; positive where it is better
    p: float | None  # None where no seed deviates
    p_holm: float | None  # adjusted for all pairs
    degrees_of_freedom: float | None


def pairs(columns: Sequence[Column], experiments: Sequence[Experiment]) -> list[ExperimentPair]:
    """Every two experiments, by every metric."""
    found = []
    both = list(combinations(experiments, 2))
    for metric, name in METRICS.items():
        tests = [welch(*(seeds(columns, one, metric) for one in pair)) for pair in both]
        tested = [test.p for test in tests if not math.isnan(test.p)]
        adjusted = iter(holm(tested))
        found += [
            ExperimentPair(
                first=first.name,
                second=second.name,
                metric=metric,
                gain=name.sign * (second.means[metric] - first.means[metric]) + 0.0,
                p=_number(test.p),
                p_holm=None if math.isnan(test.p) else next(adjusted),
                degrees_of_freedom=_number(test.freedom),
            )
            for (first, second), test in zip(both, tests, strict=True)
        ]
    return found


def seeds(columns: Sequence[Column], experiment: Experiment, metric: str) -> list[float]:
    """What each seed of an experiment scores."""
    runs = [column for column in columns if column.system.name in experiment.runs]
    return [column.scores.by_name()[metric].score for column in runs]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def group(columns: Sequence[Column]) -> list[Experiment]:
    """The experiments of which there are two seeds or more, in order of appearance.

    One seed twice, as in a copy of a run, would make a deviation that is not of seeds; so would a
    run that is unfinished.
    """
    members: dict[str, list[Column]] = {}
    for column in columns:
        if column.system.unfinished is None:
            members.setdefault(column.system.experiment, []).append(column)
    return [
        _experiment(runs)
        for runs in members.values()
        if 1 < len(runs) == len({column.system.seed for column in runs})
    ]


def _experiment(seeds: Sequence[Column]) -> Experiment:
    names = [column.system.name for column in seeds]
    values = {
        metric: [column.scores.by_name()[metric].score for column in seeds] for metric in METRICS
    }
    values["perplexity"] = [c.system.likelihood.perplexity for c in seeds]
    values["bits_per_character"] = [c.system.likelihood.bits_per_character for c in seeds]
    return Experiment(
        name=_common_name(names),
        runs=names,
        means={metric: fmean(scores) for metric, scores in values.items()},
        deviations={metric: stdev(scores) for metric, scores in values.items()},
    )


def _common_name(runs: Sequence[str]) -> str:
    """The name of a sweep's folders without the seed."""
    without = {re.sub(r"[-,_]?(?<!\.)seed[=_-]?\d+", "", run) for run in runs}
    name = without.pop()
    if without or not name or name.endswith(("/", ".")):  # nothing is left but the seed
        return f"{runs[0]} and {len(runs) - 1} more"
    return name
