"""Attention between words, from that between pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from jaxtyping import Float

from translate.data.plain_text import Link, stands_alone
from translate.data.tokenizer import END, START, WORD_START
from translate.evaluation.alignment import links

BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class WordAttention:
    """Attention between words: `weights[..., t, s]` is what target word t gives to source word s.

    Layers and heads may come before; hard links are read from one matrix.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[np.ndarray, "*heads T S"]

    def links(self) -> frozenset[Link]:
        """Hard links between words; `</s>` at the end of either side takes no part.

        The column of `</s>` goes before the maximum: Transformers park spare attention there.
        """
        rows = len(self.target) - (self.target[-1:] == (END,))
        columns = len(self.source) - (self.source[-1:] == (END,))
        return links(self.weights[:rows, :columns])


def word_attention(
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    weights: Float[np.ndarray, "*heads T S"],
) -> WordAttention:
    """Join pieces to words: sums over a source word's pieces, means over a target word's.

    Rows that summed to 1 still do, each head's for itself.
    """
    if weights.shape[-2:] != (len(target_pieces), len(source_pieces)):
        raise ValueError(
            f"weights of shape {weights.shape[-2:]} for {len(target_pieces)} target and "
            f"{len(source_pieces)} source pieces"
        )
    source, target = word_spans(source_pieces), word_spans(target_pieces)
    received = [weights[..., start:stop].sum(axis=-1) for start, stop in source]
    columns = np.stack(received, axis=-1) if received else weights  # (…, T pieces, S words)
    rows = [columns[..., start:stop, :].mean(axis=-2) for start, stop in target]
    return WordAttention(
        source=tuple(join(source_pieces[start:stop]) for start, stop in source),
        target=tuple(join(target_pieces[start:stop]) for start, stop in target),
        weights=np.stack(rows, axis=-2) if rows else columns,  # (…, T words, S words)
    )


def word_spans(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """The half-open ranges of pieces that make one word each; `<s>` and `</s>` are words.

    In scripts without spaces (Chinese, Japanese, Thai) each piece is taken for a word, or the bytes
    of one character.
    """
    starts, before = [], ""
    for position, (piece, text) in enumerate(zip(pieces, _spelled(pieces), strict=True)):
        begins = piece in (START, END) or piece.startswith(WORD_START) or _parts(before, text)
        if begins or not position:
            starts.append(position)
        before = text or before
    return list(pairwise([*starts, len(pieces)]))


def _parts(before: str, text: str) -> bool:
    """Tell whether a word begins without a space: at or after a letter that is written unspaced."""
    first, last = text[:1], before[-1:]
    if before == WORD_START or unicodedata.category(first or " ") == "Lm":
        return False  # a space alone belongs to the word after it, 々 and ー to what they prolong
    return stands_alone(first) or (first.isalnum() and stands_alone(last))


def join(pieces: Sequence[str]) -> str:
    """The text of one word's pieces; byte pieces (`<0xC3><0xA9>`) become what they spell."""
    text = "".join(_spelled(pieces)).removeprefix(WORD_START).replace(WORD_START, " ")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _spelled(pieces: Sequence[str]) -> list[str]:
    """The text of each piece; of several byte pieces of a character, the first has all of it.

    A byte that spells nothing is a lone surrogate.
    """
    texts: list[str] = []
    for is_byte, run in groupby(pieces, lambda piece: BYTE.fullmatch(piece) is not None):
        if not is_byte:
            texts += run
            continue
        spelled = bytes(int(byte[3:5], 16) for byte in run).decode("utf-8", "surrogateescape")
        for character in spelled:
            texts += [character, *[""] * (len(character.encode("utf-8", "surrogateescape")) - 1)]
    return texts
