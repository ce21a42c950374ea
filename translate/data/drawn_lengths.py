"""How long subword sampling makes a sentence: batches are planned before anything is drawn.

The words of a sentence are drawn apart, so that the pieces of a draw have a mean and a variance in
proportion to its words. Both are measured, in pieces of the best segmentation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translate.data.batching import Lengths
from translate.data.tokenizer import Tokenizer

MEASURED = 1_000  # sentences
WIDE = 2.0  # standard deviations above the mean: a longer draw, one in forty, is drawn again


def most_drawn(tokenizer: Tokenizer, texts: Sequence[str], lengths: Lengths) -> Lengths:
    """The most tokens that a draw of each sentence shall have; never fewer than the best has.

    Args:
        texts: some of the sentences, of which draws are measured: the same at each call.
        lengths: tokens of the best segmentation of all sentences, </s> included.
    """
    best = np.array([len(tokenizer.encode(text)) for text in texts])
    drawn = np.array([len(tokenizer.sample(text, seed)) for seed, text in enumerate(texts)])
    rate = drawn.sum() / max(1, best.sum())
    variance = ((drawn - rate * best) ** 2).sum() / max(1, best.sum())
    pieces = lengths - 1
    likely = np.ceil(rate * pieces + WIDE * np.sqrt(variance * pieces))
    most: Lengths = np.maximum(likely, pieces).astype(lengths.dtype) + 1
    return most
