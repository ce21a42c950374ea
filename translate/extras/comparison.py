"""Runs side by side on one test set: scores, differences, and whether they are more than chance.

The first run is the baseline of all tests. Runs that differ in their seed, and in nothing else, are
one experiment, with the mean and the deviation of its seeds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from translate.evaluation.breakdown import Bucket, by_source_length
from translate.evaluation.metrics import (
    DEFAULT,
    METRICS,
    SentenceScores,
    corpus_scores,
    intervals,
    sentence_scores,
)
from translate.extras.report_tables import Rows, cell, table
from translate.extras.seeds import (
    Column,
    Experiment,
    ExperimentPair,
    System,
    experiment_pairs,
    experiments_in,
)
from translate.extras.significance import Difference, differences
from translate.extras.verdicts import Verdict, caveats, setting_differences, verdict, verdicts
from translate.extras.word_diff import DiffWord, word_diff
from translate.wording import counted, escaped

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

EQUAL = 1e-6  # points of chrF within which two sentences are a tie
CSV = (*METRICS, "perplexity")  # the columns of figures
SPREAD = {True: "standard deviation", False: "half of the 95 % bootstrap interval"}  # of seeds?


@dataclass(frozen=True)
class Challenger:
    """A run after the first, compared with the first."""

    name: str
    differences: Mapping[str, Difference]  # by metric
    sentences: Mapping[str, int]  # that it translates better, worse and alike, by chrF
    verdict: Verdict
    another_seed: bool  # of the first run's configuration, and nothing else
    settings: Mapping[str, Sequence[object]]  # those that differ: the first run's, and its own


@dataclass(frozen=True)
class Shown:
    """A sentence on which the runs differ, with each one's translation and its chrF."""

    number: int  # of the line, from 1
    source: str
    references: Sequence[str]
    runs: Sequence[str]
    hypotheses: Sequence[str]
    chrf: Sequence[float]

    def translations(self) -> Iterator[tuple[str, float, list[DiffWord]]]:
        """Yield each run with its chrF and its words, compared with the first run's.

        The first run's are compared with the second's.
        """
        rows = zip(self.runs, self.hypotheses, self.chrf, strict=True)
        for number, (run, hypothesis, chrf) in enumerate(rows):
            yield run, chrf, word_diff(hypothesis, self.hypotheses[0 if number else 1])


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
    caveats: Sequence[str]  # other differences than those of the models
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
                    **{metric: asdict(each) for metric, each in one.differences.items()},
                    "sentences": dict(one.sentences),
                }
                for one in self.challengers
            ],
            "experiments": [vars(experiment) for experiment in self.experiments],
            "experiment_pairs": [vars(pair) for pair in self.experiment_pairs],
        }

    def tables(self) -> dict[str, Rows]:
        """The tables of the terminal and of the page, by name."""
        return {
            "scores": self._score_rows(),
            "differences": self._difference_rows(),
            "experiments": self._experiment_rows(),
            "lengths": self._length_rows(),
        }

    def _score_rows(self) -> Rows:
        """A row for each run."""
        rows = [
            [
                column.system.name,
                *(f"{score.score:.2f}" for score in column.scores.by_name().values()),
                f"{column.system.likelihood.perplexity:.2f}",
                f"{column.system.likelihood.bits_per_character:.3f}",
            ]
            for column in self.columns
        ]
        labels = [name.label for name in METRICS.values()]
        return ["run", *labels, "perplexity ↓", "bits per character ↓"], rows

    def _difference_rows(self) -> Rows:
        """A row for each run after the first and each metric; wins beside chrF."""
        headings = [
            "run", "metric", "gain", "95 % of resamples", "p bootstrap", "p randomisation",
            "won, lost, tied",
        ]  # fmt: skip
        rows = []
        for one in self.challengers:
            name = f"{one.name} (another seed)" if one.another_seed else one.name
            for metric, difference in one.differences.items():
                rows.append([
                    name if metric == "bleu" else "",
                    METRICS[metric].label,
                    f"{difference.gain:+z.2f}",
                    f"{difference.low:+z.2f} to {difference.high:+z.2f}",
                    f"{difference.bootstrap:.4f}",
                    f"{difference.randomisation:.4f}",
                    ", ".join(map(str, one.sentences.values())) if metric == "chrf" else "",
                ])  # fmt: skip
        return headings, rows

    def _experiment_rows(self) -> Rows:
        """A row for each experiment of several seeds."""
        digits = dict.fromkeys(METRICS, 2) | {"bits_per_character": 3}
        rows = [
            [
                one.name,
                str(len(one.runs)),
                *(f"{one.means[k]:.{n}f} ± {one.deviations[k]:.{n}f}" for k, n in digits.items()),
            ]
            for one in self.experiments
        ]
        labels = [name.label for name in METRICS.values()]
        return ["experiment", "seeds", *labels, "bits per character ↓"], rows

    def _length_rows(self) -> Rows:
        """A row for each bucket: BLEU and chrF of the first run, and the others' changes."""

        def change(new: Bucket, old: Bucket) -> str:
            bleu = None if new.bleu is None or old.bleu is None else new.bleu - old.bleu
            return f"{cell(bleu, '+z.1f')} / {cell(new.chrf - old.chrf, '+z.1f')}"

        name, *names = [column.system.name for column in self.columns]
        rows = []
        for first, *others in zip(*(column.buckets for column in self.columns), strict=True):
            scores = f"{cell(first.bleu)} / {cell(first.chrf)}"
            changes = (change(other, first) for other in others)
            rows.append([first.label, f"{first.items:,}", scores, *changes])
        return ["source words", "items", name, *(f"{each}, change" for each in names)], rows


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
    """Judge two systems or more on the test set `split`; the first is the baseline.

    Differences are tested by so many resamples of the paired bootstrap and trials of the
    approximate randomisation, both from `seed`; `shown` of the most different sentences are listed.
    """
    columns = [
        Column(
            system,
            corpus_scores(system.hypotheses, references, tokenize=tokenize),
            by_source_length(sources, system.hypotheses, references, tokenize=tokenize),
            sentence_scores(system.hypotheses, references, tokenize=tokenize),
        )
        for system in systems
    ]
    tested = differences(
        {system.name: system.hypotheses for system in systems},
        references, resamples=resamples, trials=trials, seed=seed, tokenize=tokenize,
    )  # fmt: skip
    first, *others = columns
    challengers = [
        Challenger(
            other.system.name,
            tested[other.system.name],
            _won_and_lost(first.sentences, other.sentences),
            verdict(first, other, tested[other.system.name]),
            another_seed=other.system.experiment == first.system.experiment
            and other.system.seed != first.system.seed,
            settings=setting_differences(first.system, other.system),
        )
        for other in others
    ]
    experiments = experiments_in(columns)
    said = verdicts(columns, {one.name: one.verdict for one in challengers}, experiments)
    return Comparison(
        split=split,
        items=len(sources),
        resampling={"resamples": resamples, "trials": trials, "seed": seed},
        tokenize=tokenize,
        columns=columns,
        challengers=challengers,
        experiments=experiments,
        experiment_pairs=experiment_pairs(columns, experiments),
        caveats=caveats(
            columns,
            experiments,
            p_values=[one.p for one in said if one.p is not None],
            resamples=resamples,
            trials=trials,
        ),
        verdicts=[one.text for one in said],
        shown=most_different(columns, sources, references, shown),
    )


def _won_and_lost(
    baseline: Sequence[SentenceScores], system: Sequence[SentenceScores]
) -> dict[str, int]:
    gains = [new.chrf - old.chrf for old, new in zip(baseline, system, strict=True)]
    wins, losses = sum(gain > EQUAL for gain in gains), sum(gain < -EQUAL for gain in gains)
    return {"wins": wins, "losses": losses, "ties": len(gains) - wins - losses}


def most_different(
    columns: Sequence[Column],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    count: int,
) -> list[Shown]:
    """The sentences whose chrF differs most between the runs, the most different first."""
    names = [column.system.name for column in columns]
    differing = []
    for item, source in enumerate(sources):
        hypotheses = [column.system.hypotheses[item] for column in columns]
        if len(set(hypotheses)) > 1:
            chrf = [column.sentences[item].chrf for column in columns]
            differing.append(Shown(item + 1, source, references[item], names, hypotheses, chrf))
    differing.sort(key=lambda sentence: max(sentence.chrf) - min(sentence.chrf), reverse=True)
    return differing[:count]


def render(comparison: Comparison) -> Group:
    """The comparison as a rich renderable: tables, words that differ, and the verdict last."""
    from rich.console import Group
    from rich.text import Text

    tables = comparison.tables()
    titles = {
        "scores": f"{comparison.split}: {counted(comparison.items, 'item')}",
        "differences": f"against {comparison.columns[0].system.name}",
        "experiments": "over seeds: mean ± standard deviation",
        "lengths": "BLEU / chrF by source length",
    }
    return Group(
        *(table(title, *tables[name]) for name, title in titles.items() if tables[name][1]),
        *(_sentence(shown) for shown in comparison.shown),
        *(Text(escaped(caveat)) for caveat in comparison.caveats),
        *(Text(escaped(verdict), style="bold") for verdict in comparison.verdicts),
    )


def _sentence(shown: Shown) -> Text:
    """A sentence with every run's translation; words that differ from the first's are marked."""
    from rich.text import Text

    lines = [
        Text(f"line {shown.number}", style="bold"),
        Text(f"  source      {escaped(shown.source)}"),
        *(Text(f"  reference   {escaped(reference)}") for reference in shown.references),
    ]
    for run, chrf, words in shown.translations():
        line = Text(f"  chrF {chrf:5.1f}  ")
        for word in words:
            line.append(escaped(word.text), style="" if word.shared else "bold underline")
        line.append(f"  {escaped(run)}", style="dim")
        lines.append(line)
    return Text("\n").join([*lines, Text("")])


def as_csv(comparison: Comparison, references: Sequence[Sequence[str]]) -> str:
    """The scores for a spreadsheet: a row for each run, or for the seeds of an experiment."""
    of = {name: experiment for experiment in comparison.experiments for name in experiment.runs}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = [name for key in CSV for name in (key, f"{key} spread")]
    writer.writerow(["system", "seeds", *figures, "spread"])
    for column in comparison.columns:
        name, system, seeds = column.system.name, column.system, 1
        if (experiment := of.get(name)) is not None:
            if name != experiment.runs[0]:
                continue
            name, seeds = experiment.name, len(experiment.runs)
            scores, spreads = experiment.means, experiment.deviations
        else:
            chance = intervals(
                system.hypotheses, references,
                resamples=comparison.resampling["resamples"], seed=comparison.resampling["seed"],
                tokenize=comparison.tokenize,
            )  # fmt: skip
            spreads = {metric: interval.half_width for metric, interval in chance.items()}
            scores = {metric: score.score for metric, score in column.scores.by_name().items()}
            scores["perplexity"] = system.likelihood.perplexity
        values = [each.get(key, "") for key in CSV for each in (scores, spreads)]
        writer.writerow([escaped(name), seeds, *values, SPREAD[seeds > 1]])
    return text.getvalue()
