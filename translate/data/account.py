"""What became of the text on its way to a corpus, for people to read before they train on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from translate.data.cleaning import RULES
from translate.data.pair import Item, Pair
from translate.data.sources import Source
from translate.data.tokenizer import Tokenizer, TokenizerConfig, Tokenizers


def account(
    source: Source,
    settings: TokenizerConfig,
    tokenizers: Tokenizers,
    dropped: Counter[str],
    train: Sequence[Pair],
    held_out: Mapping[str, Sequence[Item]],
) -> dict[str, Any]:
    """The report of a corpus, as plain JSON values."""
    splits = {"train": {"items": len({pair.source for pair in train}), "pairs": len(train)}}
    for name, rows in held_out.items():
        splits[name] = {"items": len(rows), "pairs": sum(len(row.references) for row in rows)}
    return {
        "source": source.source,
        "target": source.target,
        "attribution": source.attribution,
        "dropped": {rule: dropped[rule] for rule in RULES},
        "splits": splits,
        "tokenizer": {
            "kind": settings.kind,
            "joint": tokenizers.joint,
            "source_size": len(tokenizers.source),
            "target_size": len(tokenizers.target),
        },
    }


def language_account(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
    unseen: Sequence[Sequence[int]],
) -> dict[str, float]:
    """How a tokenizer fares on one language.

    Returns: pieces_per_word and longest (pieces of one sentence) of the training text, words being
    what stands between spaces; unknown_rate, the share of pieces of the unseen (dev) text that are
    `<unk>` or single bytes.
    """
    pieces, words = sum(map(len, ids)), sum(len(text.split()) for text in texts)
    counts = Counter(token for sentence in unseen for token in sentence)
    unknown = sum(count for token, count in counts.items() if tokenizer.is_unknown(token))
    return {
        "pieces_per_word": round(pieces / max(1, words), 3),
        "longest": max(map(len, ids)),
        "unknown_rate": round(unknown / max(1, counts.total()), 6),
    }


def render(report: Mapping[str, Any]) -> str:
    """The report of a corpus as text: what is suspicious, splits, drops, languages, attribution."""
    out = StringIO()
    console = Console(file=out, width=100, highlight=False)
    for line in report.get("suspicious", ()):  # reports of older corpora have none
        console.print(f"Suspicious: {line}", markup=False)
    console.print(_splits(report), _drops(report), _languages(report), sep="\n")
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


def _drops(report: Mapping[str, Any]) -> Table:
    table = _table("Cleaning", "pairs")
    kept = sum(counts["pairs"] for counts in report["splits"].values())
    table.add_row("kept", f"{kept:,}")
    for rule, count in report["dropped"].items():
        table.add_row(f"dropped: {rule.replace('_', ' ')}", f"{count:,}")
    return table


def _languages(report: Mapping[str, Any]) -> Table:
    tokenizer = report["tokenizer"]
    sharing = "one vocabulary" if tokenizer["joint"] else "two vocabularies"
    table = _table(
        f"Tokenizer: {tokenizer['kind']}, {sharing}",
        "vocabulary",
        "pieces a word",
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
