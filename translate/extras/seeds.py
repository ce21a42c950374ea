"""Runs that are compared, and experiments: runs that differ in their seed and in nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, stdev

from translate.evaluation.breakdown import Bucket
from translate.evaluation.metrics import METRICS, Scores, SentenceScores
from translate.evaluation.report import Likelihood
from translate.extras.significance import holm, welch


@dataclass(frozen=True)
class System:
    """One run's translations of the test set, and how the run was made."""

    name: str
    hypotheses: Sequence[str]
    likelihood: Likelihood
    search: Mapping[str, object]  # the settings that the translations were made with
    experiment: str  # equal for runs that differ in their seed alone
    seed: object
    unfinished: str | None = None  # how far its training came, where that has not ended
    languages: tuple[str, str] = ("", "")
    seen: int = 0  # of the sources, how many are known to be in its training text
    sha256: Mapping[str, str] = field(default_factory=dict)  # of model, texts and translations
    settings: Mapping[str, object] = field(default_factory=dict)  # that shaped it, but its seed
    circumstances: Mapping[str, str] = field(default_factory=dict)  # commit, device and versions


@dataclass(frozen=True)
class Column:
    """One run with its scores, as it stands beside the others."""

    system: System
    scores: Scores
    buckets: Sequence[Bucket]
    sentences: Sequence[SentenceScores]


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


def experiments_in(columns: Sequence[Column]) -> list[Experiment]:
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


def _experiment(columns: Sequence[Column]) -> Experiment:
    names = [column.system.name for column in columns]
    values = {key: [getattr(column.scores, key).score for column in columns] for key in METRICS}
    for key in ("perplexity", "bits_per_character"):
        values[key] = [getattr(column.system.likelihood, key) for column in columns]
    means = {key: fmean(scores) for key, scores in values.items()}
    deviations = {key: stdev(scores) for key, scores in values.items()}
    return Experiment(_common_name(names), names, means, deviations)


def _common_name(runs: Sequence[str]) -> str:
    """The name of a sweep's folders without the seed."""
    without = {re.sub(r"[-,_]?(?<!\.)seed[=_-]?\d+", "", run) for run in runs}
    name = without.pop()
    if without or not name or name.endswith(("/", ".")):  # nothing is left but the seed
        return f"{runs[0]} and {len(runs) - 1} more"
    return name


def seed_scores(columns: Sequence[Column], experiment: Experiment, metric: str) -> list[float]:
    """The score of each seed of an experiment."""
    runs = [column for column in columns if column.system.name in experiment.runs]
    return [column.scores.by_name()[metric].score for column in runs]


def experiment_pairs(
    columns: Sequence[Column], experiments: Sequence[Experiment]
) -> list[ExperimentPair]:
    """Every two experiments, by every metric."""
    pairs = []
    both = list(combinations(experiments, 2))
    for metric, name in METRICS.items():
        tests = [welch(*(seed_scores(columns, one, metric) for one in pair)) for pair in both]
        adjusted = iter(holm([test.p for test in tests if not math.isnan(test.p)]))
        for (first, second), test in zip(both, tests, strict=True):
            gain = name.sign * (second.means[metric] - first.means[metric]) + 0.0
            p, freedom = test.p, test.freedom
            known = not math.isnan(p)
            pairs.append(
                ExperimentPair(
                    first.name, second.name, metric, gain,
                    p if known else None, next(adjusted) if known else None,
                    None if math.isnan(freedom) else freedom,
                )
            )  # fmt: skip
    return pairs
