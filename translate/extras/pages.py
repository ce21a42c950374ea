"""An evaluation and a comparison as HTML pages, each a single file that loads nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translate.errors import UserError
from translate.evaluation.report import Report
from translate.evaluation.test_sets import TestSet
from translate.extras.attention_maps import MAX_LENGTH
from translate.extras.charts import Chart, bar_chart, heatmap_chart, histogram, line_chart
from translate.extras.comparison import Comparison
from translate.extras.page_templates import templates
from translate.extras.report_tables import bucket_rows, score_rows, slice_rows, summary
from translate.extras.word_attention import WordAttention, word_attention
from translate.extras.word_diff import word_diff
from translate.models.head import attends
from translate.run_folder import Curve, read_curves
from translate.wording import counted

if TYPE_CHECKING:
    from translate.inference.translator import Translator

log = logging.getLogger(__name__)


class EvaluationPage:
    """The page of an evaluation: figures, where they come from, and the sentences behind them.

    Args:
        run: whose translations they are.
        translator: aligns the sentences whose attention is shown.
        test_set: what is translated.
        shown: how many of the worst and of the best sentences.
        attention: the lines, from 1, whose attention is shown.

    Raises:
        UserError: metrics of the training that cannot be read, or no such line.
    """

    def __init__(
        self,
        run: Path,
        translator: Translator,
        test_set: TestSet,
        *,
        shown: int,
        attention: Sequence[int],
    ) -> None:
        metrics = run / "metrics.csv"
        self.curves = read_curves(metrics) if metrics.is_file() else {}
        beyond = [line for line in attention if line > len(test_set.sources)]
        if beyond:
            raise UserError(
                f"attention = {beyond[0]} is not a line of {test_set.split}, which has "
                f"{len(test_set.sources):,}"
            )
        self.run, self.translator, self.shown, self.lines = run, translator, shown, attention

    def render(self, report: Report, test_set: TestSet, hypotheses: Sequence[str]) -> str:
        """The page as HTML."""
        attention = sentence_attention(self.translator, test_set, hypotheses, self.lines)
        return evaluation_page(
            report, test_set, hypotheses,
            run=str(self.run), curves=self.curves, attention=attention, shown=self.shown,
        )  # fmt: skip


def sentence_attention(
    translator: Translator, test_set: TestSet, hypotheses: Sequence[str], lines: Sequence[int]
) -> Mapping[int, WordAttention]:
    """Weights by index; none of a model without attention, or of an empty or too long sentence."""
    by_index: dict[int, WordAttention] = {}
    if not attends(translator.model):
        return by_index
    tokenizers = translator.tokenizers
    for line in lines:
        source, target = test_set.sources[line - 1], hypotheses[line - 1]
        pieces = (tokenizers.source.encode(source), tokenizers.target.encode(target))
        if max(map(len, pieces)) >= MAX_LENGTH:
            log.info("the attention of line %d is not shown: it is too long", line)
            continue
        try:
            seen = translator.align(source, target)
        except UserError as error:
            log.info("the attention of line %d is not shown: %s", line, error)
            continue
        mean = seen.weights.mean(axis=(0, 1))  # (T, S)
        by_index[line - 1] = word_attention(seen.source_pieces, seen.target_pieces, mean)
    return by_index


def evaluation_page(
    report: Report,
    test_set: TestSet,
    hypotheses: Sequence[str],
    *,
    run: str,
    curves: Mapping[str, Curve],
    attention: Mapping[int, WordAttention],
    shown: int,
) -> str:
    """Render the page of an evaluation, with the curves of the training by name.

    `attention` holds the weights between the words of a sentence by its index, and `shown` says how
    many of the worst and of the best sentences are listed.
    """
    order = sorted(range(report.items), key=lambda item: report.sentences[item].chrf)
    best = order[shown:][::-1][:shown]

    def rows(items: Sequence[int]) -> list[dict[str, Any]]:
        return [_sentence(item, report, test_set, hypotheses) for item in items]

    return templates().get_template("evaluation.html").render(
        title=f"{run} on {report.split}",
        items=counted(report.items, "sentence"),
        summary=summary(report),
        scores=score_rows(report),
        training=list(_training(curves)),
        lengths=_distribution(report),
        buckets=bucket_rows(report.buckets),
        slices=[
            ("By the rarest source word's count in training", slice_rows(report.rarity)),
            ("By domain", slice_rows(report.domains)),
        ],
        attention=[
            (
                test_set.sources[item],
                hypotheses[item],
                heatmap_chart(f"line {item + 1}", words.source, words.target, words.weights),
            )
            for item, words in attention.items()
        ],
        sentences=[("Worst", rows(order[:shown])), ("Best", rows(best))],
        provenance=[
            ("command", report.command),
            ("search", ", ".join(f"{key} {value}" for key, value in report.decoding.items())),
            ("model", report.model_sha256),
            ("sources", report.sources_sha256),
            ("references", report.references_sha256),
        ],
    )  # fmt: skip


def _training(curves: Mapping[str, Curve]) -> Iterator[Chart]:
    for title, ending in (("loss, nats a token", "loss"), ("dev BLEU", "bleu")):
        lines = {name: curve for name, curve in curves.items() if name.endswith(f"/{ending}")}
        if lines:
            yield line_chart(title, lines, x="step")


def _distribution(report: Report) -> list[Chart]:
    labels = [bucket.label for bucket in report.buckets]
    bleu, chrf = [bucket.bleu for bucket in report.buckets], [b.chrf for b in report.buckets]
    scores = [sentence.chrf for sentence in report.sentences]
    return [
        bar_chart("score", labels, {"BLEU": bleu, "chrF": chrf}, x="words in the source"),
        histogram("sentences by their own chrF", scores, edges=range(0, 101, 5),
                  x="chrF of a sentence"),
    ]  # fmt: skip


def _sentence(
    item: int, report: Report, test_set: TestSet, hypotheses: Sequence[str]
) -> dict[str, Any]:
    """A row of the worst or best sentences, marked against the nearest of its references."""
    references = test_set.references[item]
    diffs = (word_diff(hypotheses[item], reference) for reference in references)
    return {
        "line": item + 1,
        "chrf": f"{report.sentences[item].chrf:.1f}",
        "source": test_set.sources[item],
        "references": references,
        "words": min(diffs, key=lambda words: sum(not word.shared for word in words)),
    }


def comparison_page(comparison: Comparison) -> str:
    """Render the page of a comparison: verdict, scores, tests, seeds, lengths and sentences."""
    first, *_ = comparison.columns
    names = [column.system.name for column in comparison.columns]
    buckets = [bucket.label for bucket in first.buckets]
    return templates().get_template("comparison.html").render(
        title=f"{names[0]} against {', '.join(names[1:])}",
        comparison=comparison,
        names=names,
        items=counted(comparison.items, "item"),
        tables=comparison.tables(),
        signatures=" · ".join(score.signature for score in first.scores.by_name().values()),
        lengths=[
            bar_chart(
                metric,
                buckets,
                {c.system.name: [getattr(b, metric.lower()) for b in c.buckets]
                 for c in comparison.columns},
                x="words in the source",
            )
            for metric in ("BLEU", "chrF")
        ],
    )  # fmt: skip
