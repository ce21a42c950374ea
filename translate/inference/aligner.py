"""How much each target word looks at each source word, for many pairs of sentences."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float

from translate.data.guidance import Words
from translate.data.tokenizer import Tokenizers
from translate.inference.forcing import TeacherForcing
from translate.inference.segments import by_length
from translate.models.head import AttentionHead
from translate.models.seq2seq import Seq2Seq

log = logging.getLogger(__name__)

WINDOW = 2048  # pairs sorted by length together
MAX_LENGTH = 512  # pieces of one side, </s> among them: a matrix of weights grows with the square


class Aligner:
    """Attention between words, by teacher forcing: the target is given, not searched for.

    A word is what stands between white space. A source word receives what its pieces receive
    together, a target word gives the mean of what its pieces give; what goes to `</s>`, or to a tag
    in front of the source, is left out.

    Args:
        head: which attention of the model.
        tokens_per_batch: padded pieces of the longer side.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        head: AttentionHead,
        *,
        tokens_per_batch: int,
        device: torch.device,
    ) -> None:
        self.forcing = TeacherForcing(model.to(device).eval(), device)
        self.tokenizers, self.head = tokenizers, head
        self.tokens_per_batch = tokens_per_batch
        self._most = min(MAX_LENGTH, model.max_length or MAX_LENGTH)

    def __call__(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> Iterator[Float[np.ndarray, "T S"]]:
        """The weights of each pair, in order: a row a target word, a column a source word.

        A pair of more than 511 pieces (the 512th is </s>), or of more than the model reads, gets
        zeros and a warning.
        """
        for start in range(0, len(sources), WINDOW):
            window = slice(start, start + WINDOW)
            yield from self._window(sources[window], targets[window], start + 1)

    def _window(
        self, sources: Sequence[str], targets: Sequence[str], number: int
    ) -> list[Float[np.ndarray, "T S"]]:
        """The weights of consecutive pairs, the first of which is on line `number`."""
        source = [self.tokenizers.source.encode_words(text) for text in sources]
        target = [self.tokenizers.target.encode_words(text) for text in targets]
        found = [
            np.zeros((len(t), len(s)), np.float32) for s, t in zip(source, target, strict=True)
        ]
        front = self.tokenizers.source.front
        lengths = [
            max(front + _length(s), _length(t)) + 1 for s, t in zip(source, target, strict=True)
        ]
        for i, length in enumerate(lengths):
            if length > self._most:
                log.warning(
                    "line %d has %d pieces, more than the limit of %d: left unaligned",
                    number + i, length - 1, self._most - 1,
                )  # fmt: skip
        chosen = [i for i, length in enumerate(lengths) if found[i].size and length <= self._most]
        for batch in by_length([lengths[i] for i in chosen], self.tokens_per_batch):
            indices = [chosen[i] for i in batch]
            pieces = self._pieces([source[i] for i in indices], [target[i] for i in indices])
            for i, weights in zip(indices, pieces, strict=True):
                found[i] = words(weights[:, front:], source[i], target[i])
        return found

    def _pieces(
        self, sources: Sequence[Words], targets: Sequence[Words]
    ) -> Float[np.ndarray, "B T S"]:
        """The weights between pieces, padded."""
        tag = self.tokenizers.source.prefix
        alignment = self.forcing.attention(
            [[*tag, *chain(*words)] for words in sources], [[*chain(*words)] for words in targets]
        )
        weights: Float[np.ndarray, "B T S"] = self.head.of(alignment).float().cpu().numpy()
        return weights


def words(
    pieces: Float[np.ndarray, "_ _"], source: Words, target: Words
) -> Float[np.ndarray, "T S"]:
    """Weights between pieces (and `</s>`, padding, which are left out) as weights between words."""
    rows = pieces[: _length(target), : _length(source)]
    received = rows @ _membership(source)  # (pieces of the target, words of the source)
    sizes = np.array([[max(1, len(word))] for word in target])
    given: Float[np.ndarray, "T S"] = _membership(target).T @ received / sizes
    return given


def _membership(words: Words) -> Float[np.ndarray, "_ _"]:
    """1 where a piece (row) belongs to a word (column); a word of no pieces has none."""
    owner = np.repeat(np.arange(len(words)), [len(word) for word in words])
    return np.eye(len(words), dtype=np.float32)[owner]


def _length(words: Words) -> int:
    return sum(map(len, words))
