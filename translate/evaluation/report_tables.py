"""An evaluation for the terminal: scores, slices and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from translate.evaluation.buckets import TOO_SHORT, bucket_rows, too_short
from translate.evaluation.metrics import METRICS
from translate.evaluation.report import Report
from translate.evaluation.slices import slice_rows
from translate.plots.terminal import table
from translate.wording import counted

if TYPE_CHECKING:
    from rich.console import Group


def render(report: Report) -> Group:
    """All of a report as a rich renderable."""
    from rich.console import Group
    from rich.text import Text

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
        Text(summary(report)),
    )


def score_rows(report: Report) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row a metric: score, half the width of its interval, and signature."""
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
    """Perplexity, speed, memory and what to make of BLEU in a line."""
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
