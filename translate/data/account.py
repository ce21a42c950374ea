"""The account of a corpus: what was kept and dropped, for people to read before they train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from translate.data.cleaning import RULES
from translate.data.pairs import Item, digests
from translate.data.plain_text import spaced
from translate.data.selection import Text
from translate.data.sources import Source
from translate.data.tokenizer import Tokenizer, TokenizerConfig, Tokenizers


def account(
    source: Source,
    settings: TokenizerConfig,
    tokenizers: Tokenizers,
    texts: Sequence[Text],
    held_out: Mapping[str, Sequence[Item]],
    counts: Mapping[str, Mapping[str, LanguageCounts]],
) -> dict[str, Any]:
    """The report of a corpus, as plain JSON values; the first of `texts` is the main one.

    `counts` are of each text by its name, and of each of its sides.
    """
    main, *extra = texts
    sources = len(np.unique(digests(pair.source for pair in main.pairs)))
    splits = {"train": {"items": sources, "pairs": len(main.pairs)}}
    for name, rows in held_out.items():
        splits[name] = {"items": len(rows), "pairs": sum(len(row.references) for row in rows)}
    return {
        "source": source.source,
        "target": source.target,
        "tag": source.tag,
        "attribution": source.attribution,
        "kept": len(main.pairs) + main.held_out,
        "dropped": {rule: main.dropped[rule] for rule in RULES},
        "splits": splits,
        "extra": {
            text.name: {
                "pairs": len(text.pairs),
                "tag": text.tag,
                "dropped": {rule: text.dropped[rule] for rule in RULES},
                "pieces_per_word": {
                    side: count.pieces_per_word for side, count in counts[text.name].items()
                },
            }
            for text in extra
        },
        "tokenizer": {
            "kind": settings.kind,
            "pretrained": settings.pretrained,
            "joint": tokenizers.joint,
            "source_size": len(tokenizers.source),
            "target_size": len(tokenizers.target),
        },
    }


@dataclass
class LanguageCounts:
    """Counts of one side of a training text, kept as it passes."""

    words: int = 0  # what stands between spaces, and each character of a script without
    pieces: int = 0
    longest: int = 0  # pieces of one sentence

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        """Count some sentences and their pieces."""
        lengths = list(map(len, ids))
        self.words += sum(len(spaced(text).split()) for text in texts)
        self.pieces += sum(lengths)
        self.longest = max(self.longest, *lengths)

    @property
    def pieces_per_word(self) -> float:
        return round(self.pieces / max(1, self.words), 3)


def language_account(
    tokenizer: Tokenizer, counts: LanguageCounts, unseen: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Return how well a tokenizer suits one language.

    Returns: pieces_per_word and longest of the training text; unknown_rate, the share of pieces of
    the unseen (dev) text that are `<unk>` or single bytes.
    """
    tokens = Counter(token for sentence in unseen for token in sentence)
    unknown = sum(count for token, count in tokens.items() if tokenizer.is_unknown(token))
    return {
        "pieces_per_word": counts.pieces_per_word,
        "longest": counts.longest,
        "unknown_rate": round(unknown / max(1, tokens.total()), 6),
    }
