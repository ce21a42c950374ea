"""The answers of a translator: translations, scores and maps of attention, spelled out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Translation:
    """One translation of one line.

    Attributes:
        text: one line; empty for an empty line, whose probabilities are 1. Unknown words stand
            replaced in it where the translator does that, and nowhere else.
        score: what ranks translations (see `Hypothesis.score`).
        log_prob: natural logarithm of its probability, </s> included.
        tokens: target pieces, without </s>.
        token_log_probs: summands of `log_prob`: one a piece and one for </s>.
        alignment: attention weights when asked for, the model has any, and the line was not split.
        finished: False where the search stopped it at its length limit.
        flags: the faults that the guard finds in it, in words.
        confidence: the chance that it is good, where `translate calibrate` has learned to tell.
        mended: the faults of a first translation, in whose place this one stands.
    """

    text: str
    score: float
    log_prob: float
    tokens: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    alignment: Float[np.ndarray, "L H T S"] | None
    finished: bool = True
    flags: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    confidence: float | None = None


NOTHING = Translation("", 0.0, 0.0, (), (), None)
# the n best of segments; by="again" and "terms" name other searches than the first
Find = Callable[..., list[list[Translation]]]


@dataclass(frozen=True)
class Score:
    """The probability that the model gives a translation.

    Attributes:
        log_prob: natural logarithm of its probability, </s> included.
        tokens: the number of predictions: pieces and </s>. Perplexity is
            exp(-log_prob / tokens).
        token_log_probs: the summands.
        unknown: the number of predictions of <unk>, which would have met any other word too.
    """

    log_prob: float
    tokens: int
    token_log_probs: tuple[float, ...]
    unknown: int = 0


@dataclass(frozen=True)
class AttentionMap:
    """The weights with which each piece (row) looked at each piece (column).

    Rows are of the translation and columns of the source, </s> last on both. Where the encoder
    looked at itself both are of the source; where the decoder did, of <s> and the translation.

    Attributes:
        source: the sentence.
        target: its translation.
        source_pieces: pieces of the source as the text spells them, the unknown ones too.
        target_pieces: likewise of the translation; `<unk>` is one that the model wrote.
        weights: by layer, head, row and column; a row sums to 1 unless the attention is defined
            otherwise (Luong's local-p, and local-m beyond the source's end).
    """

    source: str
    target: str
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    weights: Float[np.ndarray, "L H T S"]
