"""Runs side by side on one test set: what differs, by how much, and whether it is more than chance.

The first run is the baseline of all tests. Runs that differ in their seed, and in nothing else, are
one experiment, with the mean and the deviation of its seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from statistics import fmean, stdev

from translate.evaluation import sentences
from translate.evaluation.buckets import Bucket, by_source_length
from translate.evaluation.comparison_caveats import caveats, searched
from translate.evaluation.likelihood import Likelihood
from translate.evaluation.metrics import DEFAULT, METRICS, Scores, evaluate
from translate.evaluation.sentences import Record, SentenceScores
from translate.evaluation.significance import SURE, Difference, differences, welch


@dataclass(frozen=True)
class System:
    """One run's translations of the test set."""

    name: str
    hypotheses: Sequence[str]
    likelihood: Likelihood
    search: Mapping[str, object]  # how they were found
    experiment: str  # equal for runs that differ in their seed alone
    seed: object
    unfinished: str | None = None  # how far its training came, where that has not ended
    languages: tuple[str, str] = ("", "")
    seen: int = 0  # of the sources, how many are known to be in its training text
    sha256: Mapping[str, str] = field(default_factory=dict)  # of model, texts and translations


@dataclass(frozen=True)
class Column:
    """One run as it stands beside the others."""

    system: System
    scores: Scores
    buckets: Sequence[Bucket]
    sentences: Sequence[SentenceScores]


@dataclass(frozen=True)
class Challenger:
    """A run after the first, compared with the first."""

    name: str
    differences: Mapping[str, Difference]  # by metric
    record: Record
    verdict: str


@dataclass(frozen=True)
class Experiment:
    """Several seeds of one configuration; mean and standard deviation of each metric."""

    name: str
    runs: Sequence[str]
    means: Mapping[str, float]
    deviations: Mapping[str, float]


@dataclass(frozen=True)
class Shown:
    """A sentence on which the runs differ, with each one's translation and its chrF."""

    number: int  # of the line, from 1
    source: str
    references: Sequence[str]
    hypotheses: Sequence[str]
    chrf: Sequence[float]


@dataclass(frozen=True)
class Comparison:
    """Runs on one test set: scores, differences, verdicts, and the sentences behind them."""

    split: str
    items: int
    resampling: Mapping[str, int]  # resamples, trials and their seed
    tokenize: str  # BLEU's tokeniser
    columns: Sequence[Column]
    challengers: Sequence[Challenger]
    experiments: Sequence[Experiment]
    caveats: Sequence[str]  # what else than the models differs
    verdicts: Sequence[str]  # a plain sentence for each difference
    shown: Sequence[Shown]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "split": self.split,
            "items": self.items,
            **self.resampling,
            "tokenize": self.tokenize,
            "caveats": list(self.caveats),
            "verdicts": list(self.verdicts),
            "runs": [
                {
                    "run": column.system.name,
                    "sha256": dict(column.system.sha256),
                    **asdict(column.scores),
                    "likelihood": column.system.likelihood.as_dict(),
                    "buckets": [asdict(bucket) for bucket in column.buckets],
                }
                for column in self.columns
            ],
            "against_the_first": [
                {
                    "run": one.name,
                    **{metric: asdict(found) for metric, found in one.differences.items()},
                    "sentences": one.record._asdict(),
                }
                for one in self.challengers
            ],
            "experiments": [vars(experiment) for experiment in self.experiments],
        }


def compare(
    systems: Sequence[System],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    split: str,
    resamples: int,
    trials: int,
    seed: int,
    shown: int,
    tokenize: str = DEFAULT,
) -> Comparison:
    """Judge two systems or more on one test set; the first is the baseline.

    Args:
        systems: with hypotheses in the order of the sources.
        sources: a sentence an item.
        references: of each item.
        split: the name of the test set.
        resamples: of the paired bootstrap.
        trials: of the approximate randomisation.
        seed: of both.
        shown: how many of the most different sentences are listed.
        tokenize: BLEU's tokeniser.
    """
    columns = [
        Column(
            system,
            evaluate(system.hypotheses, references, tokenize=tokenize),
            by_source_length(sources, system.hypotheses, references, tokenize=tokenize),
            sentences.sentence_scores(system.hypotheses, references, tokenize=tokenize),
        )
        for system in systems
    ]
    found = differences(
        {system.name: system.hypotheses for system in systems},
        references, resamples=resamples, trials=trials, seed=seed, tokenize=tokenize,
    )  # fmt: skip
    first, *others = columns
    challengers = [
        Challenger(
            other.system.name,
            found[other.system.name],
            sentences.record(first.sentences, other.sentences),
            verdict(first.system, other.system, found[other.system.name]),
        )
        for other in others
    ]
    experiments = group(columns)
    verdicts = _verdicts(columns, challengers, experiments)
    return Comparison(
        split=split,
        items=len(sources),
        resampling={"resamples": resamples, "trials": trials, "seed": seed},
        tokenize=tokenize,
        columns=columns,
        challengers=challengers,
        experiments=experiments,
        caveats=caveats(columns, tests=len(verdicts), resamples=resamples, trials=trials),
        verdicts=verdicts,
        shown=most_different(columns, sources, references, shown),
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


def _verdicts(
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


def most_different(
    columns: Sequence[Column],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    count: int,
) -> list[Shown]:
    """The sentences whose chrF differs most between the runs, the most different first."""

    def spread(item: int) -> float:
        values = [column.sentences[item].chrf for column in columns]
        return max(values) - min(values)

    differing = [
        item
        for item in range(len(sources))
        if len({column.system.hypotheses[item] for column in columns}) > 1
    ]
    return [
        Shown(
            item + 1,
            sources[item],
            references[item],
            [column.system.hypotheses[item] for column in columns],
            [column.sentences[item].chrf for column in columns],
        )
        for item in sorted(differing, key=spread, reverse=True)[:count]
    ]
