"""What is said of each difference of a comparison, in a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from translate.evaluation.buckets import too_short
from translate.evaluation.comparison_caveats import searched
from translate.evaluation.experiments import Experiment, seeds
from translate.evaluation.metrics import METRICS
from translate.evaluation.significance import SURE, Difference, another_seed, welch

if TYPE_CHECKING:
    from translate.evaluation.comparison import Challenger, Column


class Verdict(NamedTuple):
    """A plain sentence on a difference, and how likely chance alone would make as large a one."""

    text: str
    p: float | None = None  # None where nothing was tested


def verdicts(
    columns: Sequence[Column],
    challengers: Sequence[Challenger],
    experiments: Sequence[Experiment],
) -> list[Verdict]:
    """A sentence a difference, each as strong as its trainings allow.

    Experiments are judged by the means of their seeds, a run alone beside one by their spread, and
    two runs that are alone by the sentences they were tested on.
    """
    of = {name: experiment for experiment in experiments for name in experiment.runs}
    first = columns[0].system.name
    told = [_between(columns, *pair) for pair in combinations(experiments, 2)]
    if first in of:
        alone = [column for column in columns if column.system.name not in of]
        told += [_beside(columns, of[first], column) for column in alone]
    else:
        told += [_beside(columns, experiment, columns[0]) for experiment in experiments]
        told += [one.verdict for one in challengers if one.name not in of]
    if not told:
        (only,), metric = experiments, judged_by(columns)
        label, over = METRICS[metric].label, f"over {len(only.runs)} seeds"
        mean = f"{only.means[metric]:.2f} ± {only.deviations[metric]:.2f} {label} {over}"
        return [Verdict(f"{only.name} has {mean} (mean and standard deviation).")]
    return told


def verdict(first: Column, second: Column, found: Mapping[str, Difference]) -> Verdict:
    """Whether two models differ in BLEU by more than chance; what chrF says of it, in a clause."""
    baseline, other, metric = first.system, second.system, judged_by([first, second])
    if list(baseline.hypotheses) == list(other.hypotheses):
        return Verdict(f"{other.name} translates every sentence as {baseline.name} does.")
    one, opinion = found[metric], ""
    if metric == "bleu":
        opinion = _second_opinion(one, found["chrf"])
    rival = f"{baseline.name}{searched([baseline, other])}"
    apart = f"{abs(one.gain):.2f} {METRICS[metric].label}"
    chance = (
        f"two equally good systems would differ by that much in {_share(one.randomisation)} of "
        f"shuffles (approximate randomisation) and {_share(one.bootstrap)} of resamples (bootstrap)"
    )
    if not one.significant:
        return Verdict(
            f"The difference of {apart} between {other.name} and {rival} may be chance: "
            f"{chance}{opinion}.",
            one.p,
        )
    return Verdict(
        f"{other.name} is {_which(one.gain)} than {rival} by {apart}, and these two models would "
        f"differ in the same way on other sentences of this kind: {chance}{opinion}.",
        one.p,
    )


def judged_by(columns: Sequence[Column]) -> str:
    """The metric of a verdict: BLEU, or chrF where a system's BLEU is 0 for want of four tokens."""
    return "chrf" if any(too_short(one.scores, one.buckets) for one in columns) else "bleu"


def _which(gain: float) -> str:
    return "better" if gain > 0 else "worse"


def _second_opinion(bleu: Difference, chrf: Difference) -> str:
    if not chrf.significant:
        return "; by chrF the difference is not certain" if bleu.significant else ""
    if bleu.significant and bleu.gain * chrf.gain > 0:
        return "; chrF agrees"
    gain = f"{_which(chrf.gain)} by {abs(chrf.gain):.2f}"
    return f"; but by chrF it is {gain}, which is hardly chance"


def _share(p: float) -> str:
    """A p-value in percent; below 0.1 % no more than that is said."""
    return f"{p:.1%}" if p >= 0.001 else "less than 0.1%"


def _between(columns: Sequence[Column], first: Experiment, second: Experiment) -> Verdict:
    pooled = [column for column in columns if column.system.name in {*first.runs, *second.runs}]
    metric = judged_by(pooled)
    rival = f"{first.name}{searched([column.system for column in pooled])}"
    p = welch(*(seeds(columns, experiment, metric) for experiment in (first, second))).p
    gain = second.means[metric] - first.means[metric]
    apart = f"{abs(gain):.2f} {METRICS[metric].label}"
    means = f"{_mean(second, metric)} against {_mean(first, metric)}"
    if math.isnan(p):
        return Verdict(
            f"{second.name} is {_which(gain)} than {rival} by {apart} ({means}), but no seed "
            "deviates from the others: whether that is chance cannot be tested."
        )
    chance = f"equal means would differ by that much in {_share(p)} of cases (Welch's t-test)"
    if p >= SURE:
        return Verdict(
            f"The difference of {apart} between {second.name} and {rival} may be chance ({means}): "
            f"{chance}.",
            p,
        )
    return Verdict(
        f"{second.name} is {_which(gain)} than {rival} by {apart} ({means}), and other seeds would "
        f"differ in the same way on these sentences: {chance}.",
        p,
    )


def _beside(columns: Sequence[Column], experiment: Experiment, alone: Column) -> Verdict:
    """A single training says nothing of its own seeds, only whether it could be one of theirs."""
    pooled = [*(c for c in columns if c.system.name in experiment.runs), alone]
    metric, searches = judged_by(pooled), searched([column.system for column in pooled])
    rival = f"{experiment.name}{searches} ({_mean(experiment, metric)})"
    score = alone.scores.by_name()[metric].score
    p = another_seed(score, seeds(columns, experiment, metric))
    has = f"{alone.system.name} has {score:.2f} {METRICS[metric].label}"
    if math.isnan(p):
        return Verdict(
            f"{has} and differs from {rival}, but no seed deviates from the others: whether that "
            "is chance cannot be tested."
        )
    where = "within" if p >= SURE else "outside"
    return Verdict(
        f"{has}, {where} the spread of {rival}: another seed would be as far from their mean in "
        f"{_share(p)} of cases (Student's t).",
        p,
    )


def _mean(experiment: Experiment, metric: str) -> str:
    mean, deviation = experiment.means[metric], experiment.deviations[metric]
    return f"{mean:.2f} ± {deviation:.2f} over {len(experiment.runs)} seeds"
