"""How many tokens the training pairs have, read in place from the memory-mapped table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from pyarrow import Table

from translate.data.drawn_lengths import Spread, most_drawn
from translate.data.mixing import Lengths
from translate.data.pair_table import Places


def lengths(table: Table) -> tuple[Lengths, Lengths]:
    """Tokens of each source and target, </s> (or <s>) included."""
    columns = (table.column(f"{side}_length") for side in ("source", "target"))
    source, target = (column.to_numpy() + np.int32(1) for column in columns)
    return source, target


class PairLengths:
    """The tokens of some training pairs, </s> (or <s>) included; 0 where one is left out.

    Args:
        max_length: pairs with more pieces on a side are left out.
        spreads: with subword sampling, of how many pairs, one after the other, the segmentations
            of each source and target are drawn with which spread: the tokens are then nearly the
            most that a draw may have (`most_drawn`).
    """

    def __init__(
        self,
        table: Table,
        *,
        max_length: int,
        spreads: Sequence[tuple[int, Spread, Spread]] = (),
    ) -> None:
        self.sides = [_Column(table, f"{side}_length") for side in ("source", "target")]
        self.max_length = max_length
        self.borders = np.cumsum([pairs for pairs, *_ in spreads])
        # of each side the means, and the variances, of all parts
        self.spreads = [np.array([part[side] for part in spreads]).T for side in (1, 2)]

    def __call__(self, places: Places) -> tuple[Lengths, Lengths]:
        source, target = (side.at(places) for side in self.sides)
        kept = np.maximum(source, target) <= self.max_length
        if len(self.borders):
            part = np.searchsorted(self.borders, places, side="right")
            source, target = (
                most_drawn(side, *spread[:, part])
                for side, spread in zip((source, target), self.spreads, strict=True)
            )
        return (source + 1) * kept, (target + 1) * kept


class _Column:
    """A column of numbers, chunk by chunk."""

    def __init__(self, table: Table, name: str) -> None:
        self.chunks = [chunk.to_numpy() for chunk in table.column(name).chunks]
        self.first = np.cumsum([0, *map(len, self.chunks)])

    def at(self, places: Places) -> Int[np.ndarray, "places"]:
        order = np.argsort(places)
        rising = places[order]
        borders = np.searchsorted(rising, self.first)
        values = np.empty(len(places), dtype=np.int64)
        for chunk, first, start, end in zip(
            self.chunks, self.first, borders, borders[1:], strict=False
        ):
            if start < end:
                values[order[start:end]] = chunk[rising[start:end] - first]
        return values
