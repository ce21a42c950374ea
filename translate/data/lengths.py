"""How many tokens the training pairs have: batches are planned before anything is drawn.

The words of a sentence are drawn apart, so that with subword sampling the pieces of a draw have a
mean and a variance in proportion to its words. Both are measured, in pieces of the best
segmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow
from jaxtyping import Float, Int

from translate.data.mixing import Lengths
from translate.data.pair_table import Places
from translate.data.tokenizer import Tokenizer

SIDES = ("source", "target")
MEASURED = 1_000  # sentences
WIDE = 2.0  # standard deviations above the mean: a longer draw, one in forty, is drawn again


class Spread(NamedTuple):
    """The pieces that a draw has for each of the best segmentation."""

    mean: float
    variance: float


def spread(tokenizer: Tokenizer, texts: Sequence[str]) -> Spread:
    """What draws of some sentences have, the same at each call."""
    best = np.array([len(tokenizer.encode(text)) for text in texts])
    drawn = np.array([len(tokenizer.sample(text, seed)) for seed, text in enumerate(texts)])
    mean = drawn.sum() / max(1, best.sum())
    variance = ((drawn - mean * best) ** 2).sum() / max(1, best.sum())
    return Spread(float(mean), float(variance))


def lengths(table: pyarrow.Table) -> tuple[Lengths, Lengths]:
    """Tokens of each source and target, </s> (or <s>) included."""
    source, target = (table.column(f"{side}_length").to_numpy() + np.int32(1) for side in SIDES)
    return source, target


class PairLengths:
    """The tokens of some training pairs, </s> (or <s>) included; 0 where one is left out.

    Args:
        max_length: pairs with more pieces on a side are left out.
        spreads: with subword sampling, of how many pairs, one after the other, the segmentations
            of each source and target are drawn with which spread: the tokens are then nearly the
            most that a draw may have (`_most_drawn`).
    """

    def __init__(
        self,
        table: pyarrow.Table,
        *,
        max_length: int,
        spreads: Sequence[tuple[int, Spread, Spread]] = (),
    ) -> None:
        columns = [table.column(f"{side}_length") for side in SIDES]
        self.sides = [[chunk.to_numpy() for chunk in column.chunks] for column in columns]
        self.first = np.cumsum([0, *map(len, self.sides[0])])
        self.max_length = max_length
        self.borders = np.cumsum([pairs for pairs, *_ in spreads])
        # of each side the means, and the variances, of all parts
        self.spreads = [np.array([part[side] for part in spreads]).T for side in (1, 2)]

    def __call__(self, places: Places) -> tuple[Lengths, Lengths]:
        source, target = self._pieces(places)
        kept = np.maximum(source, target) <= self.max_length
        if len(self.borders):
            part = np.searchsorted(self.borders, places, side="right")
            source, target = (
                _most_drawn(side, *spread[:, part])
                for side, spread in zip((source, target), self.spreads, strict=True)
            )
        return (source + 1) * kept, (target + 1) * kept

    def _pieces(self, places: Places) -> list[Lengths]:
        """Read in place, chunk by chunk: pyarrow's `take` copies all of a column at each call."""
        order = np.argsort(places)
        rising = places[order]
        borders = np.searchsorted(rising, self.first)
        found = [np.empty(len(places), dtype=np.int64) for _ in SIDES]
        for chunk in np.flatnonzero(np.diff(borders)):
            here = slice(*borders[chunk : chunk + 2])
            rows = rising[here] - self.first[chunk]
            for values, side in zip(found, self.sides, strict=True):
                values[order[here]] = side[chunk][rows]
        return found


def _most_drawn(
    pieces: Int[np.ndarray, "n"], mean: Float[np.ndarray, "n"], variance: Float[np.ndarray, "n"]
) -> Int[np.ndarray, "n"]:
    """The most pieces that a draw of each sentence shall have; never fewer than the best has.

    Args:
        pieces: of the best segmentations.
        mean, variance: the spread of each sentence's draws.
    """
    likely = np.ceil(mean * pieces + WIDE * np.sqrt(variance * pieces))
    most: Int[np.ndarray, "n"] = np.maximum(likely.astype(pieces.dtype), pieces)
    return most
