"""A comparison for the terminal: tables, words that differ, and the verdict last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from translate.evaluation.buckets import Bucket
from translate.evaluation.comparison import Comparison, Shown
from translate.evaluation.metrics import METRICS, cell
from translate.evaluation.sentences import word_diff
from translate.plots.terminal import table
from translate.wording import counted, escaped

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text


def render(comparison: Comparison) -> Group:
    """All of a comparison as a rich renderable."""
    from rich.console import Group
    from rich.text import Text

    seeds = (
        [table("over seeds: mean ± standard deviation", *experiment_rows(comparison))]
        if comparison.experiments
        else []
    )
    return Group(
        table(f"{comparison.split}: {counted(comparison.items, 'item')}", *score_rows(comparison)),
        table(f"against {comparison.columns[0].system.name}", *difference_rows(comparison)),
        *seeds,
        table("BLEU / chrF by source length", *length_rows(comparison)),
        *(_sentence(comparison, shown) for shown in comparison.shown),
        *(Text(escaped(caveat)) for caveat in comparison.caveats),
        *(Text(escaped(verdict), style="bold") for verdict in comparison.verdicts),
    )


def score_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings of a table, and the cells of a row for each run."""
    labels = [name.label for name in METRICS.values()]
    headings = ["run", *labels, "perplexity ↓", "bits per character ↓"]
    rows = []
    for column in comparison.columns:
        found, chances = column.scores, column.system.likelihood
        rows.append([
            column.system.name,
            *(f"{score.score:.2f}" for score in (found.bleu, found.chrf, found.ter)),
            f"{chances.perplexity:.2f}",
            f"{chances.bits_per_character:.3f}",
        ])  # fmt: skip
    return headings, rows


def difference_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each run after the first and metric; wins beside chrF."""
    headings = [
        "run",
        "metric",
        "gain",
        "95 % of resamples",
        "p bootstrap",
        "p randomisation",
        "won, lost, tied",
    ]
    rows = []
    for one in comparison.challengers:
        name = f"{one.name} (another seed)" if one.another_seed else one.name
        for metric, found in one.differences.items():
            rows.append([
                name if metric == "bleu" else "",
                METRICS[metric].label,
                f"{found.gain:+z.2f}",
                f"{found.low:+z.2f} to {found.high:+z.2f}",
                f"{found.bootstrap:.4f}",
                f"{found.randomisation:.4f}",
                ", ".join(map(str, one.record)) if metric == "chrf" else "",
            ])  # fmt: skip
    return headings, rows


def experiment_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each experiment of several seeds."""
    headings = [
        "experiment",
        "seeds",
        *(name.label for name in METRICS.values()),
        "bits per character ↓",
    ]
    rows = [
        [
            one.name,
            str(len(one.runs)),
            *(f"{one.means[key]:.2f} ± {one.deviations[key]:.2f}" for key in METRICS),
            f"{one.means['bits_per_character']:.3f} ± {one.deviations['bits_per_character']:.3f}",
        ]
        for one in comparison.experiments
    ]
    return headings, rows


def length_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row a bucket: BLEU and chrF of the first run, and the others' changes."""
    first, *others = [column.buckets for column in comparison.columns]
    names = [column.system.name for column in comparison.columns]
    headings = ["source words", "items", names[0], *(f"{name}, change" for name in names[1:])]

    def figures(bucket: Bucket) -> str:
        return f"{cell(bucket.bleu)} / {cell(bucket.chrf)}"

    def gains(new: Bucket, old: Bucket) -> str:
        bleu = None if new.bleu is None or old.bleu is None else new.bleu - old.bleu
        return f"{cell(bleu, '+z.1f')} / {cell(new.chrf - old.chrf, '+z.1f')}"

    rows = [
        [
            old.label,
            f"{old.items:,}",
            figures(old),
            *(gains(buckets[index], old) for buckets in others),
        ]
        for index, old in enumerate(first)
    ]
    return headings, rows


def _sentence(comparison: Comparison, shown: Shown) -> Text:
    """A sentence with every run's translation; words that differ from the first's are marked."""
    from rich.text import Text

    lines = [
        Text(f"line {shown.number}", style="bold"),
        Text(f"  source      {escaped(shown.source)}"),
        *(Text(f"  reference   {escaped(reference)}") for reference in shown.references),
    ]
    for number, (column, hypothesis, chrf) in enumerate(
        zip(comparison.columns, shown.hypotheses, shown.chrf, strict=True)
    ):
        against = shown.hypotheses[0 if number else 1]
        line = Text(f"  chrF {chrf:5.1f}  ")
        for word in word_diff(hypothesis, against)[0]:
            line.append(escaped(word.text), style="" if word.shared else "bold underline")
        line.append(f"  {escaped(column.system.name)}", style="dim")
        lines.append(line)
    return Text("\n").join([*lines, Text("")])
