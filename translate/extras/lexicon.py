"""A lexicon that a corpus teaches: IBM Model 1 (Brown et al. 1993)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

WORD = re.compile(r"\w+")
ROUNDS = 4  # of expectation-maximisation
SELDOM = 2  # words below are not known

Ids = Int[np.ndarray, "_"]


class Words:
    """The words of one side that occur often enough, as numbers."""

    def __init__(self, sentences: Iterable[str]) -> None:
        counts = Counter(word for sentence in sentences for word in set(split(sentence)))
        known = [word for word, count in counts.items() if count >= SELDOM]
        self.ids = {word: number for number, word in enumerate(known)}

    def encode(self, sentence: str) -> Ids:
        """The numbers of the known words of a sentence, each once."""
        known = {self.ids[word] for word in split(sentence) if word in self.ids}
        return np.fromiter(sorted(known), dtype=np.int64, count=len(known))

    def __len__(self) -> int:
        return len(self.ids)


def split(sentence: str) -> list[str]:
    """The words, without punctuation and case."""
    return WORD.findall(sentence.casefold())


class Lexicon:
    """t(target word | source word), and how well a source explains a target.

    Args:
        sources, targets: sentences of word numbers, pair by pair.
        num_sources, num_targets: how many numbers there are.
    """

    def __init__(
        self, sources: Sequence[Ids], targets: Sequence[Ids], *, num_sources: int, num_targets: int
    ) -> None:
        self.num_targets = num_targets
        s, t, group = _combinations(sources, targets)
        self.keys, cell = np.unique(s * num_targets + t, return_inverse=True)
        of_source = self.keys // num_targets
        count: Float[np.ndarray, "_"] = np.ones(len(self.keys))
        probability = count
        for _ in range(ROUNDS):
            weight = probability[cell]
            share = weight / np.bincount(group, weight)[group]  # P(s explains t), in each pair
            count = np.bincount(cell, share, minlength=len(self.keys))
            probability = count / np.bincount(of_source, count, minlength=num_sources)[of_source]
        self.count = count  # how often s was translated by t, expected
        self.probability: Float[np.ndarray, "_"] = probability
        seen = np.bincount(np.concatenate([*targets, [0]]).astype(int), minlength=num_targets)
        self.chance = (seen + 1) / (seen.sum() + num_targets)  # P(t)

    def evidence(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Float[np.ndarray, "_"]:
        """Return, for each pair, the mean over target words of log max(1, max_s t(t|s) / P(t)).

        How much likelier its best source word makes a target word; 0 where nothing is explained,
        and nan for a pair without a known word on one side.
        """
        s, t, group = _combinations(sources, targets)
        wanted = s * self.num_targets + t
        place = np.searchsorted(self.keys, wanted)
        known = np.append(self.keys, -1)[place] == wanted  # behind the last key there is none
        ratio = np.where(known, np.append(self.probability, 0)[place], 0) / self.chance[t]
        lengths = [len(b) if len(a) else 0 for a, b in zip(sources, targets, strict=True)]
        best = np.ones(sum(lengths))
        np.maximum.at(best, group, ratio)
        pair = np.repeat(np.arange(len(lengths)), lengths)
        total = np.bincount(pair, np.log(best), minlength=len(lengths))
        with np.errstate(invalid="ignore"):
            mean: Float[np.ndarray, "N"] = total / np.array(lengths, dtype=float)
        return mean


def _combinations(sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[Ids, Ids, Ids]:
    """Every source word with every target word of its pair, and a number for each target word."""
    s = [np.tile(a, len(b)) for a, b in zip(sources, targets, strict=True)]
    t = [np.repeat(b, len(a)) for a, b in zip(sources, targets, strict=True)]
    words = [len(b) if len(a) else 0 for a, b in zip(sources, targets, strict=True)]
    repeats = [len(a) for a, n in zip(sources, words, strict=True) for _ in range(n)]
    empty = np.zeros(0, dtype=np.int64)
    group = np.repeat(np.arange(sum(words)), np.array(repeats, dtype=int))
    return np.concatenate([*s, empty]), np.concatenate([*t, empty]), group
