"""A comparison as one HTML page."""

from __future__ import annotations

from translate.evaluation.comparison import Comparison, Shown
from translate.evaluation.comparison_tables import (
    difference_rows,
    experiment_rows,
    length_rows,
    score_rows,
)
from translate.evaluation.sentences import word_diff
from translate.plots import charts
from translate.plots.page import (
    Html,
    cells,
    figures,
    marked,
    page,
    paragraph,
    section,
    table,
    text,
)
from translate.wording import counted

HOW = (
    "Two models are said to differ where paired bootstrap resampling ({resamples:,} resamples) and "
    "approximate randomisation ({trials:,} trials, seed {seed}), over sacreBLEU's statistics, find "
    "a probability below 5 % that two equally good systems would differ by that much or more. That "
    "is about other sentences, not about other seeds. A gain is positive where the run is better. "
    "Sentences are won and lost by chrF. Perplexity is that of the references and is only "
    "comparable between runs with the same target vocabulary; bits per character are comparable "
    "between all runs that spell the references in full, without <unk> and in their original case."
)


def comparison_page(comparison: Comparison) -> Html:
    """Verdict, scores, tests, seeds, lengths and the most different sentences."""
    names = [column.system.name for column in comparison.columns]
    seeds = (
        [section("Over seeds: mean ± standard deviation", table(*experiment_rows(comparison)))]
        if comparison.experiments
        else []
    )
    how = HOW.format_map(comparison.resampling)
    signatures = " · ".join(
        score.signature for score in comparison.columns[0].scores.by_name().values()
    )
    return page(
        f"{names[0]} against {', '.join(names[1:])}",
        *(paragraph(verdict, "lead") for verdict in comparison.verdicts),
        *(paragraph(caveat) for caveat in comparison.caveats),
        section(
            f"Scores on {comparison.split}, {counted(comparison.items, 'item')}",
            table(*score_rows(comparison)),
            paragraph(signatures, "note"),
        ),
        *seeds,
        section(f"Against {names[0]}", table(*difference_rows(comparison)), paragraph(how, "note")),
        section(
            "By source length",
            figures(_lengths(comparison, "BLEU"), _lengths(comparison, "chrF")),
            table(*length_rows(comparison)),
            paragraph("BLEU / chrF; changes are against the first run.", "note"),
        ),
        *_differing(comparison),
    )


def _differing(comparison: Comparison) -> list[Html]:
    if not comparison.shown:
        return []
    first, second, *_ = (column.system.name for column in comparison.columns)
    how = (
        f"By chrF. Words that {first} does not have in this place are marked; in {first}, those "
        f"that {second} does not have."
    )
    return [
        section(
            "The most different sentences",
            paragraph(how),
            *(_sentence(comparison, shown) for shown in comparison.shown),
        )
    ]


def _lengths(comparison: Comparison, metric: str) -> Html:
    buckets = comparison.columns[0].buckets
    return charts.bar_chart(
        metric,
        [bucket.label for bucket in buckets],
        {
            column.system.name: [getattr(bucket, metric.lower()) for bucket in column.buckets]
            for column in comparison.columns
        },
        x="words in the source",
    )


def _sentence(comparison: Comparison, shown: Shown) -> Html:
    given = [("source", shown.source), *(("reference", sentence) for sentence in shown.references)]
    rows = [[text(name), text(""), text(sentence)] for name, sentence in given]
    for number, (column, hypothesis, chrf) in enumerate(
        zip(comparison.columns, shown.hypotheses, shown.chrf, strict=True)
    ):
        words, _ = word_diff(hypothesis, shown.hypotheses[0 if number else 1])
        rows.append([
            text(column.system.name),
            text(f"{chrf:.1f}"),
            marked((word.text, not word.shared) for word in words),
        ])  # fmt: skip
    return cells([f"line {shown.number}", "chrF", ""], rows, of_text=True)
