"""An evaluation as one HTML page: figures, where they come from, and the sentences behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from translate.evaluation.alignment import WordAttention
from translate.evaluation.buckets import bucket_rows
from translate.evaluation.report import Report
from translate.evaluation.report_tables import score_rows, summary
from translate.evaluation.run import TestSet
from translate.evaluation.sentences import word_diff
from translate.evaluation.slices import Slice, slice_rows
from translate.plots import charts
from translate.plots.curves import Curve
from translate.plots.page import (
    Html,
    cells,
    facts,
    figures,
    isolated,
    join,
    marked,
    page,
    paragraph,
    passage,
    section,
    table,
    text,
)
from translate.wording import counted


def report_page(
    report: Report,
    test_set: TestSet,
    hypotheses: Sequence[str],
    *,
    run: str,
    curves: Mapping[str, Curve],
    attention: Mapping[int, WordAttention],
    shown: int,
) -> Html:
    """The HTML page of an evaluation.

    Args:
        report: the figures.
        test_set: what was translated.
        hypotheses: the translations.
        run: whose they are.
        curves: of the training, by name (`plots.curves.read_curves`).
        attention: index of a sentence → weights between its words.
        shown: how many of the worst and of the best sentences.
    """
    order = sorted(range(report.items), key=lambda item: report.sentences[item].chrf)
    best = order[shown:][::-1][:shown]
    return page(
        f"{run} on {report.split}",
        paragraph(f"{counted(report.items, 'sentence')}: {summary(report)}"),
        section("Scores", table(*score_rows(report))),
        _training(curves),
        _distribution(report),
        _slices("By the rarest source word's count in training", report.rarity),
        _slices("By domain", report.domains),
        _attention(attention, test_set, hypotheses),
        _sentences("Worst sentences by chrF", order[:shown], report, test_set, hypotheses),
        _sentences("Best sentences by chrF", best, report, test_set, hypotheses),
        _provenance(report),
    )


def _training(curves: Mapping[str, Curve]) -> Html:
    drawn = []
    for title, ending in (("loss, nats a token", "loss"), ("dev BLEU", "bleu")):
        lines = {name: curve for name, curve in curves.items() if name.endswith(f"/{ending}")}
        if lines:
            drawn.append(charts.line_chart(title, lines, x="step"))
    return section("Training", figures(*drawn)) if drawn else Html("")


def _distribution(report: Report) -> Html:
    labels = [bucket.label for bucket in report.buckets]
    heights: dict[str, list[float | None]] = {
        "BLEU": [bucket.bleu for bucket in report.buckets],
        "chrF": [bucket.chrf for bucket in report.buckets],
    }
    chrf = [sentence.chrf for sentence in report.sentences]
    return section(
        "By source length, and sentence by sentence",
        figures(
            charts.bar_chart("score", labels, heights, x="words in the source"),
            charts.histogram(
                "sentences by their own chrF", chrf, edges=range(0, 101, 5), x="chrF of a sentence"
            ),
        ),
        table(*bucket_rows(report.buckets)),
    )


def _slices(heading: str, slices: Sequence[Slice]) -> Html:
    return section(heading, table(*slice_rows(slices))) if slices else Html("")


def _attention(
    attention: Mapping[int, WordAttention], test_set: TestSet, hypotheses: Sequence[str]
) -> Html:
    if not attention:
        return Html("")
    drawn = [
        join(
            [
                passage(
                    join([isolated(test_set.sources[item]), isolated(hypotheses[item])], " → "),
                    "note",
                ),
                charts.heatmap(f"line {item + 1}", found.source, found.target, found.weights),
            ]
        )
        for item, found in attention.items()
    ]
    how = "Rows are the translation's words; weights are the mean of all layers and heads."
    return section("Attention", paragraph(how, "note"), *drawn)


def _sentences(
    heading: str,
    chosen: Sequence[int],
    report: Report,
    test_set: TestSet,
    hypotheses: Sequence[str],
) -> Html:
    if not chosen:
        return Html("")
    rows = []
    for item in chosen:
        references = test_set.references[item]
        diffs = (word_diff(hypotheses[item], reference)[0] for reference in references)
        nearest = min(diffs, key=lambda words: sum(not word.shared for word in words))
        scores = report.sentences[item]
        rows.append([
            text(f"{item + 1}"), text(f"{scores.chrf:.1f}"), text(test_set.sources[item]),
            join(map(text, references), "<br>"),
            marked((word.text, not word.shared) for word in nearest),
        ])  # fmt: skip
    return section(
        heading,
        paragraph(
            "Words that the nearest reference does not have in this place are marked.", "note"
        ),
        cells(["line", "chrF", "source", "reference", "translation"], rows, of_text=True),
    )


def _provenance(report: Report) -> Html:
    decoding = ", ".join(f"{key} {value}" for key, value in report.decoding.items())
    return section(
        "How to get this again",
        facts(
            (name, text(value))
            for name, value in (
                ("command", report.command),
                ("search", decoding),
                ("model", report.model_sha256),
                ("sources", report.sources_sha256),
                ("references", report.references_sha256),
            )
        ),
    )
