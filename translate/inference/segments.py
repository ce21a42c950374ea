"""How lines become batches: long ones in segments, segments of like length together."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from translate.data.tokenizer import WORD_START

SENTENCE_END = (".", "!", "?", "…", "。", "！", "？", "؟", "।")
INVISIBLE = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}  # controls, formats, surrogates, separators


def has_text(line: str) -> bool:
    """Whether there is anything to see in a line."""
    return any(unicodedata.category(character) not in INVISIBLE for character in line)


def split(pieces: Sequence[str], limit: int) -> list[slice]:
    """Segments of at most `limit` pieces that together are all of them.

    Each ends after the last sentence that fits; if none does, after the last word; else anywhere.
    """
    segments, start = [], 0
    while len(pieces) - start > limit:
        words = [
            end for end in range(start + 1, start + limit + 1) if pieces[end].startswith(WORD_START)
        ]
        sentences = [end for end in words if pieces[end - 1].endswith(SENTENCE_END)]
        end = (sentences or words or [start + limit])[-1]
        segments.append(slice(start, end))
        start = end
    return [*segments, slice(start, len(pieces))]


def by_length(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Indices in batches, longest first; longest length × count stays within the budget.

    A single item longer than the budget is a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens_per_batch:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
