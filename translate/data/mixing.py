"""How often each training pair occurs in an epoch: corpora mixed by weight.

A function of (weight, place, epoch) alone: nothing is drawn, and nothing need be remembered to go
on in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

Weights = Float[np.ndarray, "pairs"]
BLOCK = 1 << 20  # pairs looked at together: what is held beside the result does not grow
GOLDEN = np.uint32(2_654_435_769)  # 2³² / golden ratio


def pairs_of(weights: Weights, epoch: int) -> Int[np.ndarray, "occurrences"]:
    """The places of all pairs of an epoch in order, of each as many as `occurrences` says."""
    blocks = []
    for start in range(0, len(weights), BLOCK):
        places = np.arange(start, min(start + BLOCK, len(weights)), dtype=np.uint32)
        often = occurrences(weights[start : start + BLOCK], places, epoch)
        blocks.append(np.repeat(places.astype(np.int32), often))
    return np.concatenate(blocks)


def occurrences(
    weights: Weights, places: Int[np.ndarray, "pairs"], epoch: int
) -> Int[np.ndarray, "pairs"]:
    """How often pairs of these weights occur in an epoch.

    ⌊(e + 1)w + u⌋ - ⌊ew + u⌋ times, with u in [0, 1) of the pair's own: in k epochs a pair of
    weight w occurs ⌊kw⌋ or ⌈kw⌉ times, so that none is forgotten, and one of a whole weight w times
    in each. Multiples of the golden ratio spread u evenly over any run of places (Knuth 1973,
    section 6.4), so that every epoch has its share of each corpus.
    """
    offsets = (places.astype(np.uint32) * GOLDEN) / 2.0**32  # modulo 2³², as unsigned integers are
    wide = weights.astype(np.float64)
    before, after = (np.floor(wide * e + offsets) for e in (epoch, epoch + 1))
    return (after - before).astype(np.int64)


def by_temperature(pairs: Mapping[str, int], temperature: float) -> dict[str, float]:
    """The weight of each corpus, when they are drawn in the proportion (n_i / Σn)^(1/T).

    Arivazhagan et al. 2019: T = 1 draws every pair alike, a large T every corpus. The largest
    corpus has weight 1, so that an epoch is all of it; the others (n_max / n_i)^(1 - 1/T).
    """
    most = max(pairs.values())
    return {name: (most / count) ** (1 - 1 / temperature) for name, count in pairs.items()}
