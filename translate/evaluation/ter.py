"""TER in bounded time: sacreBLEU's search for shifts takes minutes where a line is long.

Two random sentences of 250 words take about 6 s of a core, of 500 more than 40 s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.ter import TER, TERScore

log = logging.getLogger(__name__)

LONGEST = 250  # words, beside which sacreBLEU looks for shifts


class BoundedTER(TER):
    """sacreBLEU's TER; a sentence of more than `LONGEST` words is edited without shifts.

    That is never less than TER. Where it was done, the signature says so.
    """

    def __init__(self, *, unspaced: bool) -> None:
        """Over words; `unspaced`: over Chinese and Japanese characters."""
        super().__init__(normalized=unspaced, asian_support=unspaced)
        self.without_shifts = 0  # sentences

    def get_signature(self) -> Signature:
        """sacreBLEU's, and up to how many words shifts were looked for."""
        signature = super().get_signature()
        if self.without_shifts:
            signature.update("shifts", f"≤{LONGEST}words")
        return signature

    def corpus_score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]] | None,
        n_bootstrap: int = 1,
    ) -> TERScore:
        """sacreBLEU's, and a word in the log where sentences are too long for it."""
        score: TERScore = super().corpus_score(hypotheses, references, n_bootstrap)
        if self.without_shifts:
            log.warning(
                "TER counts no shifts in %d of %d "
                "sentences, which have more than "
                "%d words: searching for shifts "
                "would take minutes", self.without_shifts, len(hypotheses), LONGEST,
            )  # fmt: skip
        return score

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, Any]
    ) -> list[float]:
        """The fewest edits to any of the references, and the mean length of these."""
        words, references = hypothesis.split(), ref_kwargs["ref_words"]
        if max(map(len, (words, *references))) <= LONGEST:
            return [*_with_shifts(hypothesis, tuple(map(tuple, references)))]
        self.without_shifts += 1
        return [min(edits(words, other) for other in references), fmean(map(len, references))]


@lru_cache(maxsize=1 << 16)  # a score, its interval and those of the sentences ask for the same
def _with_shifts(hypothesis: str, references: tuple[tuple[str, ...], ...]) -> tuple[float, ...]:
    """sacreBLEU's own counts."""
    given = {"ref_words": [list(words) for words in references]}
    return tuple(TER()._compute_segment_statistics(hypothesis, given))


def edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Words to leave out, put in or replace (Levenshtein), looked for along the diagonal.

    Never fewer than need be, and exactly so many where no word's place moves by more than LONGEST.
    The time grows with the longer text alone.
    """
    short, long = sorted((first, second), key=len)
    numbers = {word: number for number, word in enumerate(dict.fromkeys(short))}
    across = np.array([numbers[word] for word in short], dtype=np.int64)
    places = np.arange(len(short) + 1)
    row = np.where(places <= LONGEST, places, len(short) + len(long))
    for number, word in enumerate(long, start=1):
        middle = number * len(short) // len(long)
        low, high = max(0, middle - LONGEST), min(len(short), middle + LONGEST)
        above, steps = row[low : high + 1], places[: high + 1 - low]
        fewest = above + 1  # the word left out
        replaced = above[:-1] + (across[low:high] != numbers.get(word, -1))
        np.minimum(fewest[1:], replaced, out=fewest[1:])
        # words put in: D[j] = min over k <= j of D[k] + j - k
        row[low : high + 1] = np.minimum.accumulate(fewest - steps) + steps
    return int(row[-1])
