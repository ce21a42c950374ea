"""Tables of a comparison for a paper and a spreadsheet."""

from __future__ import annotations

import csv
import io

from translate.evaluation.comparison import System, compare
from translate.evaluation.comparison_export import as_text
from translate.evaluation.likelihood import Likelihood
from translate.evaluation.significance import intervals

REFERENCES = [[f"the dog sees house {i}"] for i in range(12)]
RIGHT = [item[0] for item in REFERENCES]
WRONG = [text.replace("dog", "cat") for text in RIGHT]
LIKELIHOOD = Likelihood(-40.0, 60, 200)
SYSTEMS = [
    System("x_y-seed=1", RIGHT, LIKELIHOOD, {}, "x", 1),
    System("a&b\\c", WRONG, LIKELIHOOD, {}, "a", 1),
    System("x_y-seed=2", [*RIGHT[:-1], "a house"], LIKELIHOOD, {}, "x", 2),
]
COMPARISON = compare(
    SYSTEMS, RIGHT, REFERENCES, split="test", resamples=100, trials=20, seed=1, shown=0
)


def test_a_csv_has_a_row_for_each_run_and_one_for_all_seeds() -> None:
    seeds, run = csv.DictReader(io.StringIO(as_text(COMPARISON, REFERENCES, "csv")))
    (experiment,) = COMPARISON.experiments
    assert (seeds["system"], seeds["seeds"], seeds["spread"]) == ("x_y", "2", "standard deviation")
    for key in ("bleu", "chrf", "ter", "perplexity"):
        assert float(seeds[key]) == experiment.means[key]
        assert float(seeds[f"{key} spread"]) == experiment.deviations[key]
    assert (run["system"], run["seeds"]) == ("a&b\\c", "1")
    assert float(run["bleu"]) == COMPARISON.columns[1].scores.bleu.score
    found = intervals(WRONG, REFERENCES, resamples=100, seed=1)
    assert float(run["ter spread"]) == found["ter"].half_width
    assert run["perplexity spread"] == ""
    assert run["spread"] == "half of the 95 % bootstrap interval"


def test_a_latex_table_has_rules_and_its_names_are_escaped() -> None:
    lines = as_text(COMPARISON, REFERENCES, "latex").splitlines()
    assert [line for line in lines if line.startswith("\\")] == [
        "\\begin{tabular}{lrrrr}", "\\toprule", "\\midrule", "\\bottomrule", "\\end{tabular}",
    ]  # fmt: skip
    seeds, run = (line for line in lines if "\\pm" in line)
    bleu = COMPARISON.experiments[0]
    mean = f"${bleu.means['bleu']:.2f} \\pm {bleu.deviations['bleu']:.2f}$"
    assert seeds.startswith(f"x\\_y (2 seeds) & {mean} & ")
    assert run.startswith("a\\&b\\textbackslash{}c & $")
    assert all(line.endswith(" \\\\") and line.count(" & ") == 4 for line in (seeds, run))
    assert run.count("\\pm") == 3, "the perplexity of a run has no spread"
