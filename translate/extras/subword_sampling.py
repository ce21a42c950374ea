"""Subword regularisation: another segmentation of the same text at each look.

SentencePiece samples too, but mixes randomness of its own process into every seed, so that no run
could be repeated or resumed. Here a draw depends on text and seed alone. No piece crosses a space:
the words of a sentence are independent, and each is sampled by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate, pairwise
from math import exp, log
from random import Random

UNKNOWN_PENALTY = 10.0  # nats below the rarest piece, as in SentencePiece
REMEMBERED = 1 << 14  # words whose segmentations are kept …
LONGEST = 20  # … of at most so many characters: longer ones are sentences without spaces, seen once


class UnigramSampler:
    """Draws from P(segmentation)^alpha over all segmentations (Kudo 2018, section 3.3).

    Forward filtering, backward sampling: exact, over all segmentations and not the n best.

    Args:
        scores: log-probability of each piece.
        alpha: 1 draws from the model itself, smaller values from a flatter distribution.
    """

    def __init__(self, scores: Mapping[str, float], *, alpha: float) -> None:
        self.scores, self.alpha = scores, alpha
        self.longest = max(map(len, scores))
        self.unknown = min(scores.values()) - UNKNOWN_PENALTY
        self._remembered = lru_cache(REMEMBERED)(self._filter)

    def __call__(self, word: str, random: Random) -> list[str]:
        pieces: list[str] = []
        end = len(word)
        lattice = self._remembered(word) if end <= LONGEST else self._filter(word)
        while end:
            starts, limits = lattice[end]
            # one way to get here needs no luck
            start = starts[bisect_right(limits, random.random())] if limits else starts[0]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _filter(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return, for each prefix, the starts of its last piece, and borders in [0, 1)."""
        # of all segmentations of each prefix together; logarithms, as a long word's are too small
        weights = [0.0]
        lattice: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, ways = [], []
            for start in range(max(0, end - self.longest), end):
                score = self.scores.get(word[start:end])
                if score is None and start == end - 1:
                    score = self.unknown
                if score is not None:
                    starts.append(start)
                    ways.append(weights[start] + self.alpha * score)
            best = max(ways)
            shares = [exp(way - best) for way in ways]
            total = sum(shares)
            weights.append(best + log(total))
            lattice.append((starts, [limit / total for limit in accumulate(shares[:-1])]))
        return lattice


class BPESampler:
    """Byte-pair merges, each left out at random (Provilkov et al. 2020, algorithm 1).

    Args:
        scores: priority of each piece as the outcome of a merge.
        dropout: probability that a possible merge is not considered in one round.
    """

    def __init__(self, scores: Mapping[str, float], *, dropout: float) -> None:
        self.scores, self.dropout = scores, dropout

    def __call__(self, word: str, random: Random) -> list[str]:
        pieces = list(word)
        while True:
            merges = [
                (-score, place)
                for place, (left, right) in enumerate(pairwise(pieces))
                if (score := self.scores.get(left + right)) is not None
                and random.random() >= self.dropout
            ]
            if not merges:
                return pieces
            _, place = min(merges)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
