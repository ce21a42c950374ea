"""The account of a corpus as text, for people to read before they train."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table


def render(report: Mapping[str, Any]) -> str:
    """The report of a corpus as text: what is suspicious, splits, drops, languages, attribution."""
    out = StringIO()
    console = Console(file=out, width=100, highlight=False)
    for line in report["suspicious"]:
        console.print(f"Suspicious: {line}", markup=False)
    cleaning = _cleaning("Cleaning", report["kept"], report["dropped"])
    console.print(_splits(report), cleaning, sep="\n")
    for name, extra in report["extra"].items():
        console.print(_extra(name, extra))
    console.print(_languages(report))
    if report["attribution"]:
        console.print(f"Text: {report['attribution']}", markup=False)
    return out.getvalue()


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _splits(report: Mapping[str, Any]) -> Table:
    table = _table(f"Corpus {report['source']}-{report['target']}", "source sentences", "pairs")
    for name, counts in report["splits"].items():
        table.add_row(name, f"{counts['items']:,}", f"{counts['pairs']:,}")
    return table


def _extra(name: str, extra: Mapping[str, Any]) -> Table:
    tag = "" if extra["tag"] is None else f" <{extra['tag']}>"
    table = _cleaning(f"Extra: {name}{tag}", extra["pairs"], extra["dropped"])
    for side, pieces in extra["pieces_per_word"].items():
        table.add_row(f"pieces per word: {side}", f"{pieces:.2f}")
    return table


def _cleaning(title: str, kept: int, dropped: Mapping[str, int]) -> Table:
    table = _table(title, "pairs")
    table.add_row("kept", f"{kept:,}")
    for rule, count in dropped.items():
        table.add_row(f"dropped: {rule.replace('_', ' ')}", f"{count:,}")
    return table


def _languages(report: Mapping[str, Any]) -> Table:
    tokenizer = report["tokenizer"]
    sharing = "one vocabulary" if tokenizer["joint"] else "two vocabularies"
    table = _table(
        f"Tokenizer: {tokenizer['kind']}, {sharing}",
        "vocabulary",
        "pieces per word",
        "longest",
        "unknown (dev)",
    )
    for side in ("source", "target"):
        numbers = report["languages"][side]
        table.add_row(
            report[side],
            f"{tokenizer[f'{side}_size']:,}",
            f"{numbers['pieces_per_word']:.2f}",
            f"{numbers['longest']:,} pieces",
            f"{numbers['unknown_rate']:.4%}",
        )
    return table
