"""Gold attention, from links between words: it guides the decoder's attention in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

Words = list[list[int]]  # the pieces of each word


def gold_rows(
    links: Iterable[Sequence[int]], source: Words, target: Words
) -> Float[np.ndarray, "T S"]:
    """Return the attention of each target piece by source piece; `</s>` comes last on both.

    The pieces of a target word share its links evenly over all pieces of the source words it is
    linked to; `</s>` looks at `</s>`; a word without a link leaves rows of zeros.
    """
    words = np.zeros((len(target), len(source)), dtype=np.float32)
    for i, j in links:
        words[j, i] = 1
    pieces = words.repeat([len(w) for w in target], axis=0).repeat([len(w) for w in source], axis=1)
    rows = np.pad(pieces, ((0, 1), (0, 1)))
    rows[-1, -1] = 1
    shares: Float[np.ndarray, "T S"] = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    return shares


def pad_rows(matrices: Sequence[Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, "B T S"]:
    """One array, with zeros after the rows and columns of each matrix."""
    height, width = np.max([matrix.shape for matrix in matrices], axis=0)
    padded = np.zeros((len(matrices), height, width), dtype=np.float32)
    for row, matrix in zip(padded, matrices, strict=True):
        row[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded
