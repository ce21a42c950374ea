"""The sentences that a comparison says: a verdict on each difference, and the caveats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from translate.evaluation.breakdown import TOO_SHORT, too_short
from translate.evaluation.metrics import ENOUGH, METRICS
from translate.extras.seeds import Column, Experiment, System, seed_scores
from translate.extras.significance import SURE, Difference, another_seed, holm, welch

KEYS_SHOWN = 8  # of a configuration; the JSON has all


class Verdict(NamedTuple):
    """A plain sentence on a difference, and the probability of as large a one by chance alone."""

    text: str
    p: float | None = None  # None where nothing was tested


def verdicts(
    columns: Sequence[Column],
    beside_the_first: Mapping[str, Verdict],
    experiments: Sequence[Experiment],
) -> list[Verdict]:
    """A sentence a difference, each as strong as its trainings allow.

    Experiments are judged by the means of their seeds, a run alone beside one by their spread, and
    two runs that are alone by the sentences they were tested on (`beside_the_first`, by run).
    """
    of = {name: experiment for experiment in experiments for name in experiment.runs}
    first = columns[0].system.name
    said = [_between(columns, *pair) for pair in combinations(experiments, 2)]
    if first in of:
        alone = [column for column in columns if column.system.name not in of]
        said += [_beside(columns, of[first], column) for column in alone]
    else:
        said += [_beside(columns, experiment, columns[0]) for experiment in experiments]
        said += [each for name, each in beside_the_first.items() if name not in of]
    if not said:
        (only,), metric = experiments, judged_by(columns)
        label, over = METRICS[metric].label, f"over {len(only.runs)} seeds"
        mean = f"{only.means[metric]:.2f} ± {only.deviations[metric]:.2f} {label} {over}"
        return [Verdict(f"{only.name} has {mean} (mean and standard deviation).")]
    return said


def verdict(first: Column, second: Column, differences: Mapping[str, Difference]) -> Verdict:
    """Say whether two models differ in BLEU by more than chance, with a clause on chrF."""
    baseline, other, metric = first.system, second.system, judged_by([first, second])
    if list(baseline.hypotheses) == list(other.hypotheses):
        return Verdict(f"{other.name} translates every sentence as {baseline.name} does.")
    one = differences[metric]
    opinion = _second_opinion(one, differences["chrf"]) if metric == "bleu" else ""
    rival = f"{baseline.name}{searched([baseline, other])}"
    apart = f"{abs(one.gain):.2f} {METRICS[metric].label}"
    said = (
        f"{other.name} is {_which(one.gain)} than {rival} by {apart}, and these two models would "
        "differ in the same way on other sentences of this kind"
        if one.significant
        else f"The difference of {apart} between {other.name} and {rival} may be chance"
    )
    return Verdict(
        f"{said}: two equally good systems would differ by that much in "
        f"{_share(one.randomisation)} of shuffles (approximate randomisation) and "
        f"{_share(one.bootstrap)} of resamples (bootstrap){opinion}.",
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
    """A p-value in percent, or that it is below 0.1 %."""
    return f"{p:.1%}" if p >= 0.001 else "less than 0.1%"


def _between(columns: Sequence[Column], first: Experiment, second: Experiment) -> Verdict:
    pooled = [column for column in columns if column.system.name in {*first.runs, *second.runs}]
    metric = judged_by(pooled)
    rival = f"{first.name}{searched([column.system for column in pooled])}"
    p = welch(*(seed_scores(columns, experiment, metric) for experiment in (first, second))).p
    gain = second.means[metric] - first.means[metric]
    apart = f"{abs(gain):.2f} {METRICS[metric].label}"
    means = f"{_mean(second, metric)} against {_mean(first, metric)}"
    if math.isnan(p):
        return Verdict(
            f"{second.name} is {_which(gain)} than {rival} by {apart} ({means}), but no seed "
            "deviates from the others: whether that is chance cannot be tested."
        )
    said = (
        f"{second.name} is {_which(gain)} than {rival} by {apart} ({means}), and other seeds would "
        "differ in the same way on these sentences"
        if p < SURE
        else f"The difference of {apart} between {second.name} and {rival} may be chance ({means})"
    )
    chance = f"equal means would differ by that much in {_share(p)} of cases (Welch's t-test)"
    return Verdict(f"{said}: {chance}.", p)


def _beside(columns: Sequence[Column], experiment: Experiment, alone: Column) -> Verdict:
    """A single training says nothing of its own seeds, only whether it could be one of theirs."""
    pooled = [*(c for c in columns if c.system.name in experiment.runs), alone]
    metric, searches = judged_by(pooled), searched([column.system for column in pooled])
    rival = f"{experiment.name}{searches} ({_mean(experiment, metric)})"
    score = alone.scores.by_name()[metric].score
    p = another_seed(score, seed_scores(columns, experiment, metric))
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


def caveats(
    columns: Sequence[Column],
    experiments: Sequence[Experiment],
    *,
    p_values: Sequence[float],
    resamples: int,
    trials: int,
) -> list[str]:
    """Differences between the runs beside their models, and limits of the tests, a line each.

    The `p_values` are those of the verdicts.
    """
    systems = [column.system for column in columns]
    return [
        *_sentences(systems, len(columns[0].sentences)),
        *_tests(systems, experiments, p_values, {"resamples": resamples, "trials": trials}),
        *_trainings(systems),
        *_likelihoods(systems),
        *_without_bleu(columns),
    ]


def _sentences(systems: Sequence[System], items: int) -> Iterator[str]:
    first, *others = systems
    for other in others:
        if other.languages != first.languages:
            yield (
                f"{other.name} translates {' → '.join(other.languages)}, but {first.name} "
                f"{' → '.join(first.languages)}: scores are only comparable within one language."
            )
    for system in systems:
        if system.seen:
            yield (
                f"{system.seen:,} of these {items:,} sentences are in the training text of "
                f"{system.name}: its scores are higher than they would be on others."
            )


def _tests(
    systems: Sequence[System],
    experiments: Sequence[Experiment],
    p_values: Sequence[float],
    draws: Mapping[str, int],
) -> Iterator[str]:
    """Sentences are resampled, trainings cannot be: two seeds of one recipe differ by as much.

    Of many tests at 5 % some come out by chance, up to 5 % each.
    """
    seeded = {name for experiment in experiments for name in experiment.runs}
    if alone := [system.name for system in systems if system.name not in seeded]:
        yield (
            f"Trained once: {', '.join(alone)}. The tests say nothing about other seeds, "
            "which may differ as much: train each configuration with seed=1,2,3 (--multirun) and "
            "compare the folders."
        )
    if (tests := len(p_values)) > 1:
        below, left = (sum(p < SURE for p in each) for each in (p_values, holm(p_values)))
        holds = f" Of {below} that do, {left} remain so with p-values adjusted for that (Holm)."
        yield (
            f"{tests} differences are tested, each at 5 %: were all runs equally good, one or more "
            f"would seem more than chance with a probability of up to {min(1, SURE * tests):.0%}."
            f"{holds if below else ''}"
        )
    for name, count in draws.items():
        if count < ENOUGH:
            yield (
                f"{name} = {count} is too few to show that a difference is more than chance: give "
                f"{ENOUGH} or more."
            )


def _trainings(systems: Sequence[System]) -> Iterator[str]:
    """Differences of the runs, each of which may be the reason of a better score."""
    finished: dict[tuple[str, object], str] = {}
    for system in systems:
        if system.unfinished is not None:
            yield (
                f"{system.name} is unfinished ({system.unfinished}), so it is not part of any mean "
                "over seeds."
            )
            continue
        earlier = finished.setdefault((system.experiment, system.seed), system.name)
        if earlier != system.name:
            yield (
                f"{system.name} has the same seed as {earlier}, so no mean over the seeds of "
                "their experiment is given."
            )
    first, *others = systems
    configured: dict[str, str] = {}  # by experiment, since its seeds share a configuration
    for other in others:
        if keys := list(setting_differences(first, other)):
            more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
            start = f"{other.name} is configured otherwise than {first.name}: "
            configured.setdefault(other.experiment, f"{start}{', '.join(keys[:KEYS_SHOWN])}{more}.")
    yield from configured.values()
    if differing := [*_circumstances(systems)]:
        yield f"The runs were not trained alike: {'; '.join(differing)}."
    search = search_differences([system.search for system in systems])
    if differing := [f"{key} {', '.join(each)}" for key, each in search.items()]:
        yield f"The runs searched differently: {'; '.join(differing)}."


def _circumstances(systems: Sequence[System]) -> Iterator[str]:
    """Differences of commit, versions and device, as far as the records of the runs tell."""
    for key in dict.fromkeys(key for system in systems for key in system.circumstances):
        runs: dict[str, list[str]] = {}
        for system in (each for each in systems if key in each.circumstances):
            runs.setdefault(system.circumstances[key], []).append(system.name)
        if len(runs) > 1:
            shown = (f"{value} ({', '.join(names)})" for value, names in runs.items())
            yield f"{key} {', '.join(shown)}"


def setting_differences(first: System, other: System) -> dict[str, list[object]]:
    """The keys of two configurations that differ, with both values; first those that both have.

    A key that one lacks is null there. Nothing where a run has no configuration.
    """
    both = [first.settings, other.settings]
    if not all(both):
        return {}
    keys = dict.fromkeys(key for each in both for key in each)
    values = {key: [each.get(key) for each in both] for key in keys}
    differing = [key for key, (one, another) in values.items() if one != another]
    differing.sort(key=lambda key: not all(key in each for each in both))
    return {key: values[key] for key in differing}


def searched(systems: Sequence[System]) -> str:
    """The words behind the name of a system in a verdict where searches differ."""
    differing = search_differences([system.search for system in systems])
    return " (each with its own search)" if differing else ""


def _likelihoods(systems: Sequence[System]) -> Iterator[str]:
    def differing(field: str) -> str:
        """The counts of all systems, if they differ."""
        counts = [getattr(system.likelihood, field) for system in systems]
        shown = (f"{n:,} by {system.name}" for n, system in zip(counts, systems, strict=True))
        return ", ".join(shown) if len(set(counts)) > 1 else ""

    if left_out := differing("left_out"):
        yield (
            "The perplexities are over different pairs; left out as too long for the model: "
            f"{left_out}."
        )
    elif tokens := differing("tokens"):
        yield (
            "Perplexities of different vocabularies are not comparable, bits per character are; "
            f"tokens of the references: {tokens}."
        )
    if unknown := differing("unknown"):
        yield (
            "Bits per character are not comparable where <unk>, which fits any word, stands for "
            f"words of the references; number of times: {unknown}."
        )


def _without_bleu(columns: Sequence[Column]) -> Iterator[str]:
    if names := [one.system.name for one in columns if too_short(one.scores, one.buckets)]:
        yield f"{TOO_SHORT} ({', '.join(names)})."


def search_differences(searches: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """The settings in which searches differ, with the value of each as text."""
    keys = dict.fromkeys(key for search in searches for key in search)
    values = {key: [search.get(key) for search in searches] for key in keys}
    differing = {key: each for key, each in values.items() if any(one != each[0] for one in each)}
    return {key: list(map(str, each)) for key, each in differing.items()}
