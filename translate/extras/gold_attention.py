"""Gold attention, from links between words: it guides the decoder's attention in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from translate.data.tokenizer import Tokenizers, Words


def gold_attention(
    tokenizers: Tokenizers,
    source: str,
    target: str,
    links: Iterable[Sequence[int]],
    shape: tuple[int, int],
) -> Float[np.ndarray, "T S"]:
    """Return the gold rows of a pair; zeros where its words cannot be told from its pieces."""
    words = tokenizers.source.encode_words(source), tokenizers.target.encode_words(target)
    # no link leads to a tag
    matrix = np.pad(gold_rows(links, *words), ((0, 0), (tokenizers.source.front, 0)))
    # a run of unknown words is one piece of the sentence, but one each of the words
    return matrix if matrix.shape == shape else np.zeros(shape, np.float32)


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
