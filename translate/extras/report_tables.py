"""The tables of an evaluation, for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from translate.evaluation.breakdown import TOO_SHORT, Bucket, Slice, too_short
from translate.evaluation.metrics import METRICS
from translate.evaluation.report import Report
from translate.wording import counted, escaped

Rows = tuple[list[str], list[list[str]]]  # headings of a table, and the cells of each row


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table for the terminal: names in the first column, figures in the others.

    No text is read as rich's markup, and none moves the terminal.
    """

    def literal(text: str) -> Text:
        return Text(escaped(text))

    result = Table(title=literal(title), title_justify="left")
    for number, heading in enumerate(headings):
        result.add_column(literal(heading), justify="right" if number else "left", overflow="fold")
    for row in rows:
        result.add_row(*map(literal, row))
    return result


def render(report: Report) -> Group:
    """The report as a rich renderable."""
    scores = table(f"{report.split}: {counted(report.items, 'item')}", *score_rows(report))
    signature = scores.columns[-1]
    signature.justify, signature.style = "left", "dim"
    slices = {
        "by the rarest source word's count in training": report.rarity,
        "by domain": report.domains,
    }
    return Group(
        scores,
        table("by source length", *bucket_rows(report.buckets)),
        *(table(title, *slice_rows(parts)) for title, parts in slices.items() if parts),
        *([table("as people's text differs", *modified_rows(report))] if report.modified else ()),
        Text(summary(report)),
    )


def modified_rows(report: Report) -> Rows:
    """The table of the modifiers: BLEU of the sentences that each changes, before and after."""
    rows = [
        [
            each.modifier,
            f"{each.items:,}",
            f"{each.plain:.2f}",
            f"{each.modified:.2f}",
            f"{each.modified - each.plain:+.2f}",
        ]
        for each in report.modified
    ]
    return ["modifier", "items", "plain BLEU", "changed BLEU", "difference"], rows


def score_rows(report: Report) -> Rows:
    """The table of the metrics: score, half the width of its interval, and signature."""
    rows = [
        [
            METRICS[name].label,
            f"{score.score:.2f}",
            f"± {report.confidence[name].half_width:.2f}",
            report.confidence[name].signature,
        ]
        for name, score in report.scores.by_name().items()
    ]
    if (comet := report.comet) is not None:
        rows.append(["COMET", f"{comet.score:.4f}", f"± {comet.half_width:.4f}", comet.signature])
    return ["metric", "score", "95 %", "signature"], rows


def summary(report: Report) -> str:
    """Perplexity, speed, memory and a warning about BLEU, in one line."""
    parts = []
    if (chances := report.likelihood) is not None:
        parts = [
            f"perplexity {chances.perplexity:.2f}",
            f"{chances.bits_per_character:.3f} bits per character",
        ]
        if report.likelihood_of is not None:
            parts[-1] += f" of {report.likelihood_of}"
        if chances.left_out:
            parts.append(f"too long pairs left out: {chances.left_out:,}")
        if chances.unknown:
            parts.append(f"<unk> in the references: {chances.unknown:,}")
    parts += [
        f"{report.seconds:.1f} s",
        f"{report.sentences_per_second:.1f} sentences/s",
        f"{report.memory.process:,.0f} MiB",
    ]
    if report.memory.gpu is not None:
        parts.append(f"{report.memory.gpu:,.0f} MiB on the GPU")
    if report.empty_hypotheses:
        parts.append(f"{report.empty_hypotheses:,} empty")
    line = ", ".join(parts)
    return f"{line}; {TOO_SHORT}" if too_short(report.scores, report.buckets) else line


def bucket_rows(buckets: Sequence[Bucket]) -> Rows:
    """The table of the buckets."""
    rows = []
    for bucket in buckets:
        means = (bucket.source_words, bucket.hypothesis_words, bucket.reference_words)
        figures = [cell(value) for value in (*means, bucket.bleu, bucket.chrf)]
        rows.append([bucket.label, f"{bucket.items:,}", *figures])
    lengths = (f"{side} length" for side in ("source", "hypothesis", "reference"))
    return ["source words", "items", *lengths, "BLEU", "chrF"], rows


def slice_rows(slices: Sequence[Slice]) -> Rows:
    """The table of the slices."""
    rows = [[s.label, f"{s.items:,}", cell(s.bleu), cell(s.chrf)] for s in slices]
    return ["", "items", "BLEU", "chrF"], rows


def cell(score: float | None, form: str = "z.1f") -> str:
    """A score in a table."""
    return "–" if score is None else format(score, form)
