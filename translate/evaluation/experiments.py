"""Runs that differ in their seed alone, together: the mean and the deviation of each metric."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from translate.evaluation.metrics import METRICS

if TYPE_CHECKING:
    from translate.evaluation.comparison import Column


@dataclass(frozen=True)
class Experiment:
    """Several seeds of one configuration; mean and standard deviation of each metric."""

    name: str
    runs: Sequence[str]
    means: Mapping[str, float]
    deviations: Mapping[str, float]


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
