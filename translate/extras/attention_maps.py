"""Where a model looks: the attention in one sentence, and between the words of many pairs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from translate.attention.cache import KeysValues
from translate.attention.multi_head import Pattern
from translate.data.plain_text import has_text
from translate.data.tokenizer import END, START, Tokenizers, Words
from translate.errors import UserError
from translate.inference.batches import by_length, text_of
from translate.inference.forcing import TeacherForcing, as_numpy
from translate.inference.translation import AttentionMap
from translate.models.head import AttentionHead
from translate.models.seq2seq import Seq2Seq
from translate.vocabulary import BOS, EOS

log = logging.getLogger(__name__)

WINDOW = 2048  # pairs sorted by length together
MAX_LENGTH = 512  # pieces of one side, </s> among them: a matrix of weights grows with the square
NO_SELF_ATTENTION = (
    "this model has no self-attention: its layers are recurrent or convolutional; leave out "
    "attention= to see what it attends to in the source"
)


class AttentionMaps:
    """The attention in one sentence, with the pieces to read it by.

    Args:
        translate: ids of a source → ids of the model's translation, for where no target is given.
    """

    def __init__(
        self,
        tokenizers: Tokenizers,
        forcing: TeacherForcing,
        translate: Callable[[list[int]], list[int]],
    ) -> None:
        self.tokenizers, self.forcing, self._translate = tokenizers, forcing, translate

    def cross(self, source: str, target: str | None) -> AttentionMap:
        """Return the attention of each piece of the target over the pieces of the source."""
        source_ids, source_pieces = self._source(source)
        target_ids, target_pieces, target = self._target(source_ids, target)
        (weights,) = self.forcing.attention([source_ids], [target_ids])
        return AttentionMap(
            source, target, (*source_pieces, END), (*target_pieces, END), as_numpy(weights)
        )

    def within(
        self, source: str, target: str | None, *, side: Literal["encoder", "decoder"]
    ) -> AttentionMap:
        """Return the attention of each piece over those of its own sentence."""
        if side not in ("encoder", "decoder"):
            raise UserError(f"side={side!r}: must be 'encoder' or 'decoder'")
        source_ids, pieces = self._source(source)
        if side == "encoder":
            pieces, weights = (*pieces, END), _self_attention(self.forcing, source_ids)
            return AttentionMap(source, source, pieces, pieces, weights)
        target_ids, pieces, target = self._target(source_ids, target)
        pieces = (START, *pieces)
        weights = _self_attention(self.forcing, source_ids, target_ids)
        return AttentionMap(target, target, pieces, pieces, weights)

    def _source(self, source: str) -> tuple[list[int], tuple[str, ...]]:
        """Return the ids and pieces of a sentence to look into."""
        ids = self.tokenizers.source.encode(text_of(source, "the sentence"))
        if not ids or not has_text(source):
            raise UserError("the sentence to align is empty: give one with words")
        return ids, tuple(self.tokenizers.source.spelled(source))

    def _target(
        self, source_ids: list[int], target: str | None
    ) -> tuple[list[int], tuple[str, ...], str]:
        """Return ids, pieces and text of a translation: of `target`, or of the model's own."""
        tokenizer = self.tokenizers.target
        if target is not None:
            text_of(target, "the target")
            return tokenizer.encode(target), tuple(tokenizer.spelled(target)), target
        ids = self._translate(source_ids)
        return ids, tuple(tokenizer.pieces(ids)), tokenizer.decode(ids)


@torch.inference_mode()
def _self_attention(
    forcing: TeacherForcing, source: list[int], target: list[int] | None = None
) -> Float[np.ndarray, "L H T T"]:
    """Return the encoder's attention over the source and </s>, or the decoder's over a target.

    Raises:
        UserError: the model has no self-attention.
    """
    with _recorded(forcing.model, causal=target is not None) as layers:
        memory = forcing.model.encode(*forcing.padded([[*source, EOS]]))
        if target is not None:
            forcing.model.decode(forcing.padded([[BOS, *target]])[0], memory)
    if not layers:
        raise UserError(NO_SELF_ATTENTION)
    return as_numpy(torch.stack([weights[0] for weights in layers]))


@contextmanager
def _recorded(model: Seq2Seq, *, causal: bool) -> Iterator[list[Float[Tensor, "B H T T"]]]:
    """Record the weights of each layer that runs in the block, of the decoder if `causal`."""
    layers: list[Tensor] = []

    def record(
        pattern: Pattern, inputs: tuple[Tensor, KeysValues], options: dict[str, Any], _: Tensor
    ) -> None:
        query, memory = inputs
        layers.append(pattern.weights(query, memory.keys, mask=options["mask"]))

    patterns = [module for module in model.modules() if isinstance(module, Pattern)]
    hooks = [
        pattern.register_forward_hook(record, with_kwargs=True)
        for pattern in patterns
        if pattern.causal == causal
    ]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


class Aligner:
    """Attention between the words of many pairs of sentences.

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
        """Yield the weights of each pair, in order: a row a target word, a column a source word.

        A pair of more than 511 pieces (the 512th is </s>), or of more than the model reads, gets
        zeros and a warning.
        """
        for start in range(0, len(sources), WINDOW):
            window = slice(start, start + WINDOW)
            yield from self._window(sources[window], targets[window], start + 1)

    def _window(
        self, sources: Sequence[str], targets: Sequence[str], number: int
    ) -> list[Float[np.ndarray, "T S"]]:
        """Return the weights of consecutive pairs, the first of which is on line `number`."""
        source = [self.tokenizers.source.encode_words(text) for text in sources]
        target = [self.tokenizers.target.encode_words(text) for text in targets]
        weights = [
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
        chosen = [i for i, length in enumerate(lengths) if weights[i].size and length <= self._most]
        for batch in by_length([lengths[i] for i in chosen], self.tokens_per_batch):
            indices = [chosen[i] for i in batch]
            pieces = self._pieces([source[i] for i in indices], [target[i] for i in indices])
            for i, rows in zip(indices, pieces, strict=True):
                weights[i] = between_words(rows[:, front:], source[i], target[i])
        return weights

    def _pieces(
        self, sources: Sequence[Words], targets: Sequence[Words]
    ) -> Float[np.ndarray, "B T S"]:
        """Return the weights between pieces, padded."""
        tag = self.tokenizers.source.prefix
        alignment = self.forcing.attention(
            [[*tag, *itertools.chain(*words)] for words in sources],
            [[*itertools.chain(*words)] for words in targets],
        )
        weights: Float[np.ndarray, "B T S"] = self.head.of(alignment).float().cpu().numpy()
        return weights


def between_words(
    pieces: Float[np.ndarray, "_ _"], source: Words, target: Words
) -> Float[np.ndarray, "T S"]:
    """Sum weights between pieces up to weights between words; `</s>` and padding are left out."""
    rows = pieces[: _length(target), : _length(source)]
    received = rows @ _membership(source)  # (pieces of the target, words of the source)
    sizes = np.array([[max(1, len(word))] for word in target])
    weights: Float[np.ndarray, "T S"] = _membership(target).T @ received / sizes
    return weights


def _membership(words: Words) -> Float[np.ndarray, "_ _"]:
    """Return 1 where a piece (row) belongs to a word (column); a word of no pieces has none."""
    owner = np.repeat(np.arange(len(words)), [len(word) for word in words])
    return np.eye(len(words), dtype=np.float32)[owner]


def _length(words: Words) -> int:
    return sum(map(len, words))
