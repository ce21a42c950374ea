"""What is said of each difference of a comparison, in a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from translate.evaluation.comparison_caveats import searched
from translate.evaluation.experiments import Experiment
from translate.evaluation.significance import SURE, Difference, welch

if TYPE_CHECKING:
    from translate.evaluation.comparison import Challenger, Column, System


def verdicts(
    columns: Sequence[Column],
    challengers: Sequence[Challenger],
    experiments: Sequence[Experiment],
) -> list[str]:
    """A sentence a difference: experiments by the means of their seeds, other runs one by one."""
    seeded = {name for experiment in experiments for name in experiment.runs}
    both = [_between(columns, *pair) for pair in combinations(experiments, 2)]
    alone = [
        one.verdict
        for one in challengers
        if one.name not in seeded or columns[0].system.name not in seeded
    ]
    if len(experiments) == 1 and not alone:
        (only,) = experiments
        return [
            f"{only.name} has {only.means['bleu']:.2f} ± {only.deviations['bleu']:.2f} BLEU over "
            f"{len(only.runs)} seeds (mean and standard deviation)."
        ]
    return both + alone


def _between(columns: Sequence[Column], first: Experiment, second: Experiment) -> str:
    systems = [c.system for c in columns if c.system.name in {*first.runs, *second.runs}]
    rival = f"{first.name}{searched(systems)}"
    bleu = {column.system.name: column.scores.bleu.score for column in columns}
    p = welch(*([bleu[run] for run in experiment.runs] for experiment in (first, second)))
    apart = second.means["bleu"] - first.means["bleu"]
    which = "better" if apart > 0 else "worse"
    means = " against ".join(
        f"{e.means['bleu']:.2f} ± {e.deviations['bleu']:.2f} over {len(e.runs)} seeds"
        for e in (second, first)
    )
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
        f"{second.name} is {which} than {rival} by {abs(apart):.2f} BLEU ({means}), and the "
        f"difference is real: {chance}."
    )


def verdict(baseline: System, other: System, found: Mapping[str, Difference]) -> str:
    """Whether the difference in BLEU is real, in a sentence; what chrF says of it, in a clause."""
    if list(baseline.hypotheses) == list(other.hypotheses):
        return f"{other.name} translates every sentence as {baseline.name} does."
    bleu, chrf = found["bleu"], found["chrf"]
    rival = f"{baseline.name}{searched([baseline, other])}"
    chance = (
        f"two equally good systems would differ by that much in {_share(bleu.randomisation)} of "
        f"shuffles (approximate randomisation) and {_share(bleu.bootstrap)} of resamples "
        "(bootstrap)"
    )
    if not bleu.real:
        return (
            f"The difference of {abs(bleu.gain):.2f} BLEU between {other.name} and {rival} may be "
            f"chance: {chance}{_second_opinion(bleu, chrf)}."
        )
    which = "better" if bleu.gain > 0 else "worse"
    return (
        f"{other.name} is {which} than {rival} by {abs(bleu.gain):.2f} BLEU, and the difference is "
        f"real: {chance}{_second_opinion(bleu, chrf)}."
    )


def _second_opinion(bleu: Difference, chrf: Difference) -> str:
    if not chrf.real:
        return "; by chrF the difference is not certain" if bleu.real else ""
    if bleu.real and bleu.gain * chrf.gain > 0:
        return "; chrF agrees"
    better = "better" if chrf.gain > 0 else "worse"
    return f"; but by chrF it is {better} by {abs(chrf.gain):.2f}, and that is real"


def _share(p: float) -> str:
    """A p-value in percent; below 0.1 % no more than that is said."""
    return f"{p:.1%}" if p >= 0.001 else "less than 0.1%"
