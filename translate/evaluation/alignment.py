"""Word alignment read from attention, and its error rate against a gold standard.

A link is a pair (source word, target word) of positions from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from translate.data.plain_text import Link
from translate.errors import UserError
from translate.wording import counted

Linker = Callable[[Float[np.ndarray, "T S"], Float[np.ndarray, "S T"]], frozenset[Link]]


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
