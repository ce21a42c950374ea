"""Runs side by side on one test set: what differs, by how much, and whether it is more than chance.

The first run is the baseline of all tests. Runs that differ in their seed, and in nothing else, are
one experiment, with the mean and the deviation of its seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from translate.evaluation import sentences
from translate.evaluation.buckets import Bucket, by_source_length
from translate.evaluation.comparison_caveats import caveats, setting_differences
from translate.evaluation.comparison_verdicts import Verdict, verdict, verdicts
from translate.evaluation.experiments import Experiment, ExperimentPair, group, pairs
from translate.evaluation.likelihood import Likelihood
from translate.evaluation.metrics import DEFAULT, Scores, evaluate
from translate.evaluation.sentences import Record, SentenceScores
from translate.evaluation.significance import Difference, differences


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
    settings: Mapping[str, object] = field(default_factory=dict)  # that shaped it, but its seed
    circumstances: Mapping[str, str] = field(default_factory=dict)  # commit, device and versions


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
    verdict: Verdict
    another_seed: bool  # of the first run's configuration, and nothing else
    settings: Mapping[str, Sequence[object]]  # those that differ: the first run's, and its own


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
    experiment_pairs: Sequence[ExperimentPair]
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
                    "circumstances": dict(column.system.circumstances),
                    **asdict(column.scores),
                    "likelihood": column.system.likelihood.as_dict(),
                    "buckets": [asdict(bucket) for bucket in column.buckets],
                }
                for column in self.columns
            ],
            "against_the_first": [
                {
                    "run": one.name,
                    "another_seed": one.another_seed,
                    "settings": dict(one.settings),
                    **{metric: asdict(found) for metric, found in one.differences.items()},
                    "sentences": one.record._asdict(),
                }
                for one in self.challengers
            ],
            "experiments": [vars(experiment) for experiment in self.experiments],
            "experiment_pairs": [vars(pair) for pair in self.experiment_pairs],
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
            verdict(first, other, found[other.system.name]),
            another_seed=other.system.experiment == first.system.experiment
            and other.system.seed != first.system.seed,
            settings=setting_differences(first.system, other.system),
        )
        for other in others
    ]
    experiments = group(columns)
    told = verdicts(columns, challengers, experiments)
    return Comparison(
        split=split,
        items=len(sources),
        resampling={"resamples": resamples, "trials": trials, "seed": seed},
        tokenize=tokenize,
        columns=columns,
        challengers=challengers,
        experiments=experiments,
        experiment_pairs=pairs(columns, experiments),
        caveats=caveats(
            columns,
            experiments,
            p_values=[one.p for one in told if one.p is not None],
            resamples=resamples,
            trials=trials,
        ),
        verdicts=[one.text for one in told],
        shown=most_different(columns, sources, references, shown),
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
