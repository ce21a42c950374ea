"""What is said of each difference of a comparison, in a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from translate.evaluation.comparison_caveats import searched
from translate.evaluation.experiments import Experiment
from translate.evaluation.significance import SURE, Difference, another_seed, welch

if TYPE_CHECKING:
    from translate.evaluation.comparison import Challenger, Column, System


def verdicts(
    columns: Sequence[Column],
    challengers: Sequence[Challenger],
    experiments: Sequence[Experiment],
) -> list[str]:
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
        (only,) = experiments
        return [
            f"{only.name} has {only.means['bleu']:.2f} ± {only.deviations['bleu']:.2f} BLEU over "
            f"{len(only.runs)} seeds (mean and standard deviation)."
        ]
    return told


def verdict(baseline: System, other: System, found: Mapping[str, Difference]) -> str:
    """Whether two models differ in BLEU by more than chance; what chrF says of it, in a clause."""
    if list(baseline.hypotheses) == list(other.hypotheses):
        return f"{other.name} translates every sentence as {baseline.name} does."
    bleu, chrf = found["bleu"], found["chrf"]
    rival = f"{baseline.name}{searched([baseline, other])}"
    chance = (
        f"two equally good systems would differ by that much in {_share(bleu.randomisation)} of "
        f"shuffles (approximate randomisation) and {_share(bleu.bootstrap)} of resamples "
        "(bootstrap)"
    )
    if not bleu.significant:
        return (
            f"The difference of {abs(bleu.gain):.2f} BLEU between {other.name} and {rival} may be "
            f"chance: {chance}{_second_opinion(bleu, chrf)}."
        )
    which = "better" if bleu.gain > 0 else "worse"
    return (
        f"{other.name} is {which} than {rival} by {abs(bleu.gain):.2f} BLEU, and these two models "
        f"would differ alike on other sentences of this kind: {chance}"
        f"{_second_opinion(bleu, chrf)}."
    )


def _second_opinion(bleu: Difference, chrf: Difference) -> str:
    if not chrf.significant:
        return "; by chrF the difference is not certain" if bleu.significant else ""
    if bleu.significant and bleu.gain * chrf.gain > 0:
        return "; chrF agrees"
    better = "better" if chrf.gain > 0 else "worse"
    return f"; but by chrF it is {better} by {abs(chrf.gain):.2f}, which is hardly chance"


def _share(p: float) -> str:
    """A p-value in percent; below 0.1 % no more than that is said."""
    return f"{p:.1%}" if p >= 0.001 else "less than 0.1%"


def _between(columns: Sequence[Column], first: Experiment, second: Experiment) -> str:
    systems = [c.system for c in columns if c.system.name in {*first.runs, *second.runs}]
    rival = f"{first.name}{searched(systems)}"
    p = welch(*(_scores(columns, experiment) for experiment in (first, second)))
    apart = second.means["bleu"] - first.means["bleu"]
    which = "better" if apart > 0 else "worse"
    means = f"{_mean(second)} against {_mean(first)}"
    if math.isnan(p):
        return (
            f"{second.name} is {which} than {rival} by {abs(apart):.2f} BLEU ({means}), but no "
            "seed deviates from the others: whether that is chance cannot be tested."
        )
    chance = f"equal means would differ by that much in {_share(p)} of cases (Welch's t-test)"
    if p >= SURE:
        return (
            f"The difference of {abs(apart):.2f} BLEU between {second.name} and {rival} may be "
            f"chance ({means}): {chance}."
        )
    return (
        f"{second.name} is {which} than {rival} by {abs(apart):.2f} BLEU ({means}), and other "
        f"seeds would differ alike on these sentences: {chance}."
    )


def _beside(columns: Sequence[Column], experiment: Experiment, alone: Column) -> str:
    """A single training says nothing of its own seeds, only whether it could be one of theirs."""
    systems = [c.system for c in columns if c.system.name in experiment.runs]
    rival = f"{experiment.name}{searched([*systems, alone.system])} ({_mean(experiment)})"
    score = alone.scores.bleu.score
    p = another_seed(score, _scores(columns, experiment))
    has = f"{alone.system.name} has {score:.2f} BLEU"
    if math.isnan(p):
        return (
            f"{has} and differs from {rival}, but no seed deviates from the others: whether that "
            "is chance cannot be tested."
        )
    where = "within" if p >= SURE else "outside"
    return (
        f"{has}, {where} the spread of {rival}: another seed would be as far from their mean in "
        f"{_share(p)} of cases (Student's t)."
    )


def _mean(experiment: Experiment) -> str:
    mean, deviation = experiment.means["bleu"], experiment.deviations["bleu"]
    return f"{mean:.2f} ± {deviation:.2f} over {len(experiment.runs)} seeds"


def _scores(columns: Sequence[Column], experiment: Experiment) -> list[float]:
    return [c.scores.bleu.score for c in columns if c.system.name in experiment.runs]
