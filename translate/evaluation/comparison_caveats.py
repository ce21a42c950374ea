"""What differs between the runs of a comparison beside their models, and could be the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from translate.evaluation.buckets import TOO_SHORT, too_short
from translate.evaluation.significance import SURE, holm

if TYPE_CHECKING:
    from translate.evaluation.comparison import Column, System
    from translate.evaluation.experiments import Experiment


ENOUGH = 20  # of n resamples the lowest probability is 1 / (n + 1), and it has to be below 5 %
KEYS_SHOWN = 8  # of a configuration; the JSON has all


def caveats(
    columns: Sequence[Column],
    experiments: Sequence[Experiment],
    *,
    p_values: Sequence[float],
    resamples: int,
    trials: int,
) -> list[str]:
    """All that makes the figures less than they seem, a line each.

    The `p_values` are those of the verdicts.
    """
    systems = [column.system for column in columns]
    return [
        *_languages(systems),
        *_seen(systems, len(columns[0].sentences)),
        *_trained_once(columns, experiments),
        *_many(p_values, draws=min(resamples, trials)),
        *too_few(resamples=resamples, trials=trials),
        *_unfinished(systems),
        *_seeds_twice(systems),
        *_settings(systems),
        *_circumstances(systems),
        *_search(systems),
        *_likelihood(systems),
        *_without_bleu(columns),
    ]


def _languages(systems: Sequence[System]) -> list[str]:
    first, *others = systems
    return [
        f"{other.name} translates {' → '.join(other.languages)}, but {first.name} "
        f"{' → '.join(first.languages)}: scores are only comparable within one language."
        for other in others
        if other.languages != first.languages
    ]


def _seen(systems: Sequence[System], items: int) -> list[str]:
    return [
        f"{system.seen:,} of these {items:,} sentences are in the training text of "
        f"{system.name}: its scores are higher than they would be on others."
        for system in systems
        if system.seen
    ]


def _trained_once(columns: Sequence[Column], experiments: Sequence[Experiment]) -> list[str]:
    """Sentences are resampled, trainings cannot be: two seeds of one recipe differ by as much."""
    seeded = {name for experiment in experiments for name in experiment.runs}
    names = [column.system.name for column in columns]
    alone = [name for name in names if name not in seeded]
    if not alone:
        return []
    return [
        f"Trained once: {', '.join(alone)}. The tests say nothing about other seeds, "
        "which may differ as much: train each configuration with seed=1,2,3 (--multirun) and "
        "compare the folders."
    ]


def _many(p_values: Sequence[float], *, draws: int) -> list[str]:
    """Of many tests at 5 % some come out by chance: at most 5 % for each, however they depend."""
    tests = len(p_values)
    if tests < 2:
        return []
    below, left = (sum(p < SURE for p in each) for each in (p_values, holm(p_values)))
    lowest, coarse = 1 / (draws + 1), ""
    if tests * lowest >= SURE and lowest == min(p_values):
        coarse = (
            f", none of which can be below {tests * lowest:.2f} with {draws:,} resamples or "
            f"trials: give {ENOUGH * tests:,} or more"
        )
    holds = f" Of {below} that do, {left} remain so with p-values adjusted for that (Holm){coarse}."
    return [
        f"{tests} differences are tested, each at 5 %: were all runs equally good, one or more "
        f"would seem more than chance with a probability of up to {min(1, SURE * tests):.0%}."
        f"{holds if below else ''}"
    ]


def too_few(**counts: int) -> list[str]:
    """Of the numbers of draws those that no difference can stand out from, a line each."""
    return [
        f"{name} = {count} is too few to show that a difference is more than chance: give "
        f"{ENOUGH} or more."
        for name, count in counts.items()
        if count < ENOUGH
    ]


def _unfinished(systems: Sequence[System]) -> list[str]:
    return [
        f"{system.name} is unfinished ({system.unfinished}), so it is not part of any mean over "
        "seeds."
        for system in systems
        if system.unfinished is not None
    ]


def _seeds_twice(systems: Sequence[System]) -> list[str]:
    found = []
    first: dict[tuple[str, object], str] = {}
    for system in (each for each in systems if each.unfinished is None):
        earlier = first.setdefault((system.experiment, system.seed), system.name)
        if earlier != system.name:
            found.append(
                f"{system.name} has the same seed as {earlier}, so no mean over the seeds of "
                "their experiment is given."
            )
    return found


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


def _settings(systems: Sequence[System]) -> list[str]:
    """What else than its model's name may be the reason why a run is better than the first."""
    first, *others = systems
    found: dict[str, str] = {}  # by experiment, since its seeds share a configuration
    for other in others:
        if keys := list(setting_differences(first, other)):
            more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
            told = f"{other.name} is configured otherwise than {first.name}: "
            found.setdefault(other.experiment, f"{told}{', '.join(keys[:KEYS_SHOWN])}{more}.")
    return list(found.values())


def _circumstances(systems: Sequence[System]) -> list[str]:
    """Of runs whose record tells: the same configuration is not the same program everywhere."""
    keys = dict.fromkeys(key for system in systems for key in system.circumstances)
    differing = []
    for key in keys:
        runs: dict[str, list[str]] = {}
        for system in (each for each in systems if key in each.circumstances):
            runs.setdefault(system.circumstances[key], []).append(system.name)
        if len(runs) > 1:
            told = (f"{value} ({', '.join(names)})" for value, names in runs.items())
            differing.append(f"{key} {', '.join(told)}")
    return [f"The runs were not trained alike: {'; '.join(differing)}."] if differing else []


def _search(systems: Sequence[System]) -> list[str]:
    found = search_differences([system.search for system in systems])
    differing = [f"{key} {', '.join(each)}" for key, each in found.items()]
    return [f"The runs searched differently: {'; '.join(differing)}."] if differing else []


def search_differences(searches: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """The settings in which searches differ, with the value of each as text."""
    keys = dict.fromkeys(key for search in searches for key in search)
    values = {key: [search.get(key) for search in searches] for key in keys}
    differing = {key: each for key, each in values.items() if any(one != each[0] for one in each)}
    return {key: list(map(str, each)) for key, each in differing.items()}


def searched(systems: Sequence[System]) -> str:
    """What a verdict says behind the names of systems that may differ by their search alone."""
    differing = search_differences([system.search for system in systems])
    return " (each with its own search)" if differing else ""


def _likelihood(systems: Sequence[System]) -> list[str]:
    found = []
    left_out = [system.likelihood.left_out for system in systems]
    if len(set(left_out)) > 1:
        found.append(
            "The perplexities are over different pairs; left out as too long for the model: "
            f"{_by_name(left_out, systems)}."
        )
    tokens = [system.likelihood.tokens for system in systems]
    if not found and len(set(tokens)) > 1:
        found.append(
            "Perplexities of different vocabularies are not comparable, bits per character are; "
            f"tokens of the references: {_by_name(tokens, systems)}."
        )
    unknown = [system.likelihood.unknown for system in systems]
    if len(set(unknown)) > 1:
        found.append(
            "Bits per character are not comparable where <unk>, which fits any word, stands for "
            f"words of the references; number of times: {_by_name(unknown, systems)}."
        )
    return found


def _without_bleu(columns: Sequence[Column]) -> list[str]:
    names = [one.system.name for one in columns if too_short(one.scores, one.buckets)]
    return [f"{TOO_SHORT} ({', '.join(names)})."] if names else []


def _by_name(counts: Sequence[int], systems: Sequence[System]) -> str:
    return ", ".join(f"{n:,} by {system.name}" for n, system in zip(counts, systems, strict=True))
