"""A random order of a corpus that is computed place by place: it is never held in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt64

ROUNDS = 12  # of row and column in turn; fewer favour some orders of a handful of numbers


def shuffled(
    places: Int[np.ndarray, "places"], size: int, seed: Sequence[int]
) -> Int[np.ndarray, "places"]:
    """What stands at some places of a random permutation of range(size).

    A Feistel network on the rows and columns of a table with at least `size` cells, where a number
    that falls outside the range is moved again until it does not (Black & Rogaway 2002, "Ciphers
    with arbitrary finite domains").
    """
    columns = math.isqrt(size - 1) + 1
    rows = -(-size // columns)  # fewer than `columns` cells are too many
    keys = np.random.default_rng(seed).integers(2**64, size=ROUNDS, dtype=np.uint64)
    numbers = places.astype(np.uint64)
    outside = np.ones(len(numbers), dtype=bool)
    while outside.any():
        row, column = np.divmod(numbers[outside], np.uint64(columns))
        for change, key in enumerate(keys):
            if change % 2:
                row = (row + _mixed(column + key)) % np.uint64(rows)
            else:
                column = (column + _mixed(row + key)) % np.uint64(columns)
        numbers[outside] = row * np.uint64(columns) + column
        outside = numbers >= size
    return numbers.astype(np.int64)


def _mixed(numbers: UInt64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    """Halves of numbers that look random: SplitMix64's last steps (Steele, Lea & Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers >> np.uint64(32)  # the sum with a row cannot pass 2⁶⁴
