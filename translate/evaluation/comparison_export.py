"""A comparison as a table for a paper or a spreadsheet: a row for each run, or for its seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from translate.evaluation.comparison import Column, Comparison
from translate.evaluation.experiments import Experiment
from translate.evaluation.significance import intervals
from translate.wording import escaped

Form = Literal["csv", "latex"]
SPREAD = {True: "standard deviation", False: "half of the 95 % bootstrap interval"}  # of seeds?
COLUMNS = {"bleu": r"BLEU $\uparrow$", "chrf": r"chrF $\uparrow$", "ter": r"TER $\downarrow$",
           "perplexity": r"Perplexity $\downarrow$"}  # fmt: skip
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
})  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A run, or the mean of an experiment's seeds."""

    system: str
    seeds: int
    scores: Mapping[str, float]  # by metric, and the perplexity
    spreads: Mapping[str, float]  # of those that have one


def as_text(comparison: Comparison, references: Sequence[Sequence[str]], form: Form) -> str:
    """The table in LaTeX (booktabs) or CSV, in the order of the runs."""
    found = list(_rows(comparison, references))
    return _latex(found) if form == "latex" else _csv(found)


def _rows(comparison: Comparison, references: Sequence[Sequence[str]]) -> Iterator[Row]:
    of = {name: experiment for experiment in comparison.experiments for name in experiment.runs}
    for column in comparison.columns:
        experiment = of.get(column.system.name)
        if experiment is None:
            yield _of_run(column, comparison, references)
        elif column.system.name == experiment.runs[0]:
            yield _of_seeds(experiment)


def _of_seeds(experiment: Experiment) -> Row:
    means, deviations = (
        {key: values[key] for key in COLUMNS}
        for values in (experiment.means, experiment.deviations)
    )
    return Row(experiment.name, len(experiment.runs), means, deviations)


def _of_run(column: Column, comparison: Comparison, references: Sequence[Sequence[str]]) -> Row:
    found = intervals(
        column.system.hypotheses, references,
        resamples=comparison.resampling["resamples"], seed=comparison.resampling["seed"],
        tokenize=comparison.tokenize,
    )  # fmt: skip
    scores = {name: score.score for name, score in column.scores.by_name().items()}
    perplexity = {"perplexity": column.system.likelihood.perplexity}
    spreads = {name: interval.half_width for name, interval in found.items()}
    return Row(column.system.name, 1, scores | perplexity, spreads)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = [name for key in COLUMNS for name in (key, f"{key} spread")]
    writer.writerow(["system", "seeds", *figures, "spread"])
    for row in rows:
        values = [each.get(key, "") for key in COLUMNS
                  for each in (row.scores, row.spreads)]  # fmt: skip
        writer.writerow([escaped(row.system), row.seeds, *values, SPREAD[row.seeds > 1]])
    return text.getvalue()


def _latex(rows: Sequence[Row]) -> str:
    def line(*cells: str) -> str:
        return " & ".join(cells) + r" \\"

    def figure(row: Row, key: str) -> str:
        spread = f" \\pm {row.spreads[key]:.2f}" if key in row.spreads else ""
        return f"${row.scores[key]:.2f}{spread}$"

    def name(row: Row) -> str:
        over = f" ({row.seeds} seeds)" if row.seeds > 1 else ""
        return f"{escaped(row.system).translate(LATEX)}{over}"

    return "\n".join([
        f"% ± of a run: {SPREAD[False]}; of several seeds: {SPREAD[True]}",
        rf"\begin{{tabular}}{{l{'r' * len(COLUMNS)}}}",
        r"\toprule",
        line("System", *COLUMNS.values()),
        r"\midrule",
        *(line(name(row), *(figure(row, key) for key in COLUMNS)) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip
