"""From weights between words to links: the ways to decide which word translates which.

Every way takes the weights that target words give to source words (forward), and those that source
words give to target words (backward): a second model's that translates the other way, or the
same ones seen from the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Float

from translate.data.text import Link
from translate.evaluation.alignment import links

Linker = Callable[[Float[np.ndarray, "T S"], Float[np.ndarray, "S T"]], frozenset[Link]]


def linkers(*, threshold: float) -> Mapping[str, Linker]:
    """Every way to find links, by name."""
    return {
        "argmax": argmax,
        "threshold": partial(above, threshold=threshold),
        "intersection": intersection,
        "union": union,
    }


def argmax(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]
) -> frozenset[Link]:
    """Every target word with the source word it looks at most."""
    return links(forward)


def above(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"], *, threshold: float
) -> frozenset[Link]:
    """Every pair whose weight is at least the threshold: several links of a word, or none."""
    targets, sources = np.nonzero(forward >= threshold)
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))


def intersection(
    forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]
) -> frozenset[Link]:
    """The links that both directions agree on: fewer, and more often right."""
    return links(forward) & turned(links(backward))


def union(forward: Float[np.ndarray, "T S"], backward: Float[np.ndarray, "S T"]) -> frozenset[Link]:
    """The links of either direction: more, with many-to-one links both ways."""
    return links(forward) | turned(links(backward))


def turned(found: frozenset[Link]) -> frozenset[Link]:
    """The same links seen from the other language."""
    return frozenset((source, target) for target, source in found)
