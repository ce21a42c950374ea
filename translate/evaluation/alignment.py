"""Word alignment read from attention, and its error rate against a gold standard.

A link is a pair (source word, target word) of positions from 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import numpy as np
from jaxtyping import Float

from translate.data.plain_text import Link, stands_alone
from translate.data.tokenizer import END, START, WORD_START
from translate.errors import UserError
from translate.wording import counted

Linker = Callable[[Float[np.ndarray, "T S"], Float[np.ndarray, "S T"]], frozenset[Link]]
BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class AlignmentScores:
    """Fractions from 0 to 1; an error rate of 0 is a perfect alignment."""

    error_rate: float
    precision: float
    recall: float


def alignment_error_rate(
    sure: Iterable[Iterable[Sequence[int]]],
    possible: Iterable[Iterable[Sequence[int]]],
    predicted: Iterable[Iterable[Sequence[int]]],
) -> AlignmentScores:
    """Score predicted links against sure and possible ones, summed over the sentences of a corpus.

    With A predicted, S sure and P possible links (S counts as part of P), Och & Ney 2003:
        precision = |A ∩ P| / |A|      recall = |A ∩ S| / |S|
        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    Raises:
        UserError: different numbers of sentences, or neither a sure nor a predicted link.
    """
    gold_sure, gold_possible, guesses = (
        [set(map(tuple, pairs)) for pairs in sentences] for sentences in (sure, possible, predicted)
    )
    if not len(gold_sure) == len(gold_possible) == len(guesses):
        raise UserError(
            f"sure links for {counted(len(gold_sure), 'sentence')}, possible for "
            f"{len(gold_possible)}, predicted for {len(guesses)}: the three counts must be equal"
        )
    num_sure = sum(map(len, gold_sure))
    num_predicted = sum(map(len, guesses))
    if num_sure + num_predicted == 0:
        raise UserError(
            "0 sure and 0 predicted links, of which there is no error rate: give pairs of "
            "sentences that have links, or leave out gold="
        )
    hits_sure = sum(len(a & s) for a, s in zip(guesses, gold_sure, strict=True))
    hits_possible = sum(
        len(a & (s | p)) for a, s, p in zip(guesses, gold_sure, gold_possible, strict=True)
    )
    return AlignmentScores(
        error_rate=1 - (hits_sure + hits_possible) / (num_predicted + num_sure),
        # nothing predicted (or nothing sure) leaves nothing to be wrong about
        precision=hits_possible / num_predicted if num_predicted else 1.0,
        recall=hits_sure / num_sure if num_sure else 1.0,
    )


def links(weights: Float[np.ndarray, "T S"]) -> frozenset[Link]:
    """Link every target position to the source position it attends to most (the first of equals).

    A row without any weight, as of a fully masked query, stays unaligned.
    """
    if not weights.size:
        return frozenset()
    best = weights.argmax(axis=1)  # (T,)
    return frozenset(
        (int(source), target) for target, source in enumerate(best) if weights[target, source] > 0
    )


def linkers(*, threshold: float) -> Mapping[str, Linker]:
    """Every way to decide which word translates which, by name.

    Each takes the weights that target words give to source words (forward), and those that source
    words give to target words (backward): of a second model that translates the other way, or the
    first model's, seen from the other side.
    """
    return {
        "argmax": argmax,
        "threshold": partial(above, threshold=threshold),
        "intersection": intersection,
        "union": union,
    }


def argmax(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]
) -> frozenset[Link]:
    """Link every target word to the source word that it attends to most."""
    return links(forward)


def above(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"], *, threshold: float
) -> frozenset[Link]:
    """Link every pair whose weight is at least the threshold: a word may have several, or none."""
    targets, sources = np.nonzero(forward >= threshold)
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))


def intersection(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]
) -> frozenset[Link]:
    """Links that both directions agree on: fewer, and more often right."""
    return links(forward) & turned(links(backward))


def union(forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]) -> frozenset[Link]:
    """Links of either direction: more, with many-to-one links both ways."""
    return links(forward) | turned(links(backward))


def turned(links: frozenset[Link]) -> frozenset[Link]:
    """The same links seen from the other language."""
    return frozenset((source, target) for target, source in links)


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
