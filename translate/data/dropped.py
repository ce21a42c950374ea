"""What is left out of the training text: how many pairs by rule and, where it is asked, which."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from translate.data.pair import Pair
from translate.data.pair_table import PairTable


class Dropped(NamedTuple):
    """A training pair that is left out, its text tidy: as the rules saw it."""

    rule: str
    corpus: str  # main, or a name of data.extra
    line: int  # of its files, as `Source.first_line` counts
    source: str
    target: str
    repeats: int | None = None  # of a duplicate: the line of the first pair like it


Tell = Callable[[Dropped], None]


class Drops:
    """What is left out of one corpus: `counts` by rule, and each pair to `tell`, if there is one.

    Memory holds numbers for each pair that is told, and nothing of those that are kept.
    """

    def __init__(self, corpus: str, *, first_line: int = 1, tell: Tell | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._corpus, self._first_line, self._tell = corpus, first_line, tell
        self._unwritten = array("q")  # which of the pairs that were read are in no table, from 0

    def unwritten(self, rule: str, index: int, pair: Pair) -> None:
        """Leave out the pair of this index, from 0 and rising, before it comes into a table."""
        self.counts[rule] += 1
        if self._tell is not None:
            self._unwritten.append(index)
            self._tell(self._named(rule, index, pair))

    def of_table(
        self, rule: str, pairs: PairTable, kept: PairTable, repeated: PairTable | None = None
    ) -> None:
        """Leave out those `pairs` that are not `kept`, both of the table of all that remained.

        `repeated` is, of each that is left out as a duplicate, the first pair like it.
        """
        if len(pairs) == len(kept):
            return
        self.counts[rule] += len(pairs) - len(kept)
        if self._tell is not None:
            left_out = pairs.without(kept)
            indices, firsts = self._indices(left_out).tolist(), [None] * len(left_out)
            if repeated is not None:
                firsts = self._indices(repeated).tolist()
            for index, pair, first in zip(indices, left_out, firsts, strict=True):
                self._tell(self._named(rule, index, pair, first))

    def _indices(self, pairs: PairTable) -> Int[np.ndarray, "pairs"]:
        """Which of the pairs that were read they are: a table is dense, and has gaps before it."""
        unwritten = np.array(self._unwritten, dtype=np.int64)
        before = unwritten - np.arange(len(unwritten))  # pairs of the table before each gap
        return pairs.places + np.searchsorted(before, pairs.places, side="right")

    def _named(self, rule: str, index: int, pair: Pair, first: int | None = None) -> Dropped:
        line = self._first_line + index
        repeats = None if first is None else self._first_line + first
        return Dropped(rule, self._corpus, line, pair.source, pair.target, repeats)
