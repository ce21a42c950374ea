"""Which pairs an epoch has, and how often: corpora mixed by weight.

A function of (weight, place, epoch) alone: nothing is drawn, and nothing need be remembered to go
on in the middle of a run. Nothing is kept of a pair either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from translate.data.pair_table import Places

Lengths = Int[np.ndarray, "pairs"]  # tokens of each pair's source or target
# of the pairs at some places, the tokens of source and target; 0 of both where one is left out
LengthsOf = Callable[[Places], tuple[Lengths, Lengths]]
BLOCK = 1 << 18  # pairs looked at together
GOLDEN = np.uint32(2_654_435_769)  # 2³² / golden ratio


class Draws(NamedTuple):
    """Pairs as an epoch has them."""

    pairs: Places
    occurrences: Int[np.ndarray, "pairs"]  # of the pair in the epoch, from 0
    source_lengths: Lengths
    target_lengths: Lengths

    def at(self, indices: Int[np.ndarray, "some"] | slice) -> Draws:
        """Some of them."""
        return Draws(*(column[indices] for column in self))


class Extent(NamedTuple):
    """All pairs that are not left out; the sums are of an epoch, on average."""

    pairs: int
    longest: int  # tokens of the longest sentence
    source_tokens: float
    target_tokens: float
    longer_sides: float  # tokens of each pair's longer side


class Mixture:
    """Corpora one after the other, whose pairs each have a length and a weight.

    An epoch has `slots`, as many for each pair as the pair may occur in it.

    Args:
        parts: pairs and weight of each corpus, the weight being how often its pairs occur in an
            epoch (`occurrences`).
    """

    def __init__(self, parts: Sequence[tuple[int, float]], lengths: LengthsOf) -> None:
        sizes = np.array([pairs for pairs, _ in parts], dtype=np.int64)
        self.lengths = lengths
        self.weights = np.array([weight for _, weight in parts], dtype=np.float64)
        self.most = np.ceil(self.weights).astype(np.int64)  # occurrences in one epoch
        self.first = np.cumsum([0, *sizes])  # pair of each corpus
        self.first_slot = np.cumsum([0, *(sizes * self.most)])

    @property
    def pairs(self) -> int:
        """Those that are left out, too."""
        return int(self.first[-1])

    @property
    def slots(self) -> int:
        """How many an epoch has."""
        return int(self.first_slot[-1])

    @cached_property
    def extent(self) -> Extent:
        """Found by a look at all pairs, a block after the other."""
        used = longest = 0
        sums = np.zeros(3)
        for start in range(0, self.pairs, BLOCK):
            places = np.arange(start, min(start + BLOCK, self.pairs))
            weights = self.weights[np.searchsorted(self.first, places, side="right") - 1]
            source, target = self.lengths(places)
            longer = np.maximum(source, target)
            used += int(np.count_nonzero(longer * weights))
            longest = max(longest, int(longer.max(initial=0, where=weights > 0)))
            sums += [(side * weights).sum() for side in (source, target, longer)]
        return Extent(used, longest, *sums.tolist())

    def draws(self, slots: Int[np.ndarray, "slots"], epoch: int) -> Draws:
        """The pairs that stand in some slots of an epoch; some slots are empty."""
        part = np.searchsorted(self.first_slot, slots, side="right") - 1
        place, occurrence = np.divmod(slots - self.first_slot[part], self.most[part])
        pairs = self.first[part] + place
        drawn = Draws(pairs, occurrence, *self.lengths(pairs))
        often = occurrences(self.weights[part], pairs, epoch)
        return drawn.at((occurrence < often) & (drawn.source_lengths > 0))


def occurrences(
    weights: Float[np.ndarray, "pairs"], places: Places, epoch: int
) -> Int[np.ndarray, "pairs"]:
    """How often pairs of these weights occur in an epoch.

    ⌊(e + 1)w + u⌋ - ⌊ew + u⌋ times, with u in [0, 1) of the pair's own: in k epochs a pair of
    weight w occurs ⌊kw⌋ or ⌈kw⌉ times, so that none is forgotten, and one of a whole weight w times
    in each. Multiples of the golden ratio spread u evenly over any run of places (Knuth 1973,
    section 6.4), so that every epoch has its share of each corpus.
    """
    offsets = (places.astype(np.uint32) * GOLDEN) / 2.0**32  # modulo 2³², as unsigned integers are
    before, after = (np.floor(weights * e + offsets) for e in (epoch, epoch + 1))
    return (after - before).astype(np.int64)


def by_temperature(pairs: Mapping[str, int], temperature: float) -> dict[str, float]:
    """The weight of each corpus, when they are drawn in the proportion (n_i / Σn)^(1/T).

    Arivazhagan et al. 2019: T = 1 draws every pair alike, a large T every corpus. The largest
    corpus has weight 1, so that an epoch is all of it; the others (n_max / n_i)^(1 - 1/T).
    """
    most = max(pairs.values())
    return {name: (most / count) ** (1 - 1 / temperature) for name, count in pairs.items()}
