"""How long subword sampling makes a sentence: batches are planned before anything is drawn.

The words of a sentence are drawn apart, so that the pieces of a draw have a mean and a variance in
proportion to its words. Both are measured, in pieces of the best segmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from translate.data.tokenizer import Tokenizer

MEASURED = 1_000  # sentences
WIDE = 2.0  # standard deviations above the mean: a longer draw, one in forty, is drawn again


class Spread(NamedTuple):
    """The pieces that a draw has for each of the best segmentation."""

    mean: float
    variance: float


def spread(tokenizer: Tokenizer, texts: Sequence[str]) -> Spread:
    """What draws of some sentences have, the same at each call."""
    best = np.array([len(tokenizer.encode(text)) for text in texts])
    drawn = np.array([len(tokenizer.sample(text, seed)) for seed, text in enumerate(texts)])
    mean = drawn.sum() / max(1, best.sum())
    variance = ((drawn - mean * best) ** 2).sum() / max(1, best.sum())
    return Spread(float(mean), float(variance))


def most_drawn(
    pieces: Int[np.ndarray, "n"], mean: Float[np.ndarray, "n"], variance: Float[np.ndarray, "n"]
) -> Int[np.ndarray, "n"]:
    """The most pieces that a draw of each sentence shall have; never fewer than the best has.

    Args:
        pieces: of the best segmentations.
        mean, variance: the spread of each sentence's draws.
    """
    likely = np.ceil(mean * pieces + WIDE * np.sqrt(variance * pieces))
    most: Int[np.ndarray, "n"] = np.maximum(likely.astype(pieces.dtype), pieces)
    return most
