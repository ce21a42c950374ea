"""What a translator answers: translations, scores and maps of attention, spelled out."""

from __future__ import annotations

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
        flags: what the guard finds wrong with it, in words.
        confidence: the chance that it is good, where `translate calibrate` has learned to tell.
        mended: what it found wrong with a first translation, in whose place this one stands.
        breaks: how many of the tokens stand before each text between them that is not the model's.
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
    breaks: tuple[int, ...] = ()


NOTHING = Translation("", 0.0, 0.0, (), (), None)


@dataclass(frozen=True)
class Score:
    """How likely the model finds a given translation.

    Attributes:
        log_prob: natural logarithm of its probability, </s> included.
        tokens: how many predictions that is: pieces and </s>. Perplexity is
            exp(-log_prob / tokens).
        token_log_probs: the summands.
        unknown: how many of the predictions are of <unk>, which any other word would have met too.
    """

    log_prob: float
    tokens: int
    token_log_probs: tuple[float, ...]
    unknown: int = 0


@dataclass(frozen=True)
class AttentionMap:
    """Which pieces (columns) each piece (row) looked at.

    Rows are of the translation and columns of the source, </s> last on both. Where the encoder
    looked at itself both are of the source; where the decoder did, of <s> and the translation.

    Attributes:
        source, target: the sentence and the translation attended from.
        source_pieces, target_pieces: as the text spells them, the unknown ones too; `<unk>` is one
            that the model wrote.
        weights: by layer, head, row and column; a row sums to 1 unless the attention is defined
            otherwise (Luong's local-p, and local-m beyond the source's end).
    """

    source: str
    target: str
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    weights: Float[np.ndarray, "L H T S"]
