"""What a model looks at in a sentence, with the pieces to read it by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from translate.data.text import has_text
from translate.data.tokenizer import END, START, Tokenizers
from translate.errors import UserError
from translate.inference.forcing import TeacherForcing, as_numpy
from translate.inference.segments import text_of
from translate.inference.translation import AttentionMap


class AttentionMaps:
    """`Translator.align` and `Translator.self_attention`.

    Args:
        own: ids of a source → ids of the model's own translation.
    """

    def __init__(
        self, tokenizers: Tokenizers, forcing: TeacherForcing, own: Callable[[list[int]], list[int]]
    ) -> None:
        self.tokenizers, self.forcing, self._own = tokenizers, forcing, own

    def cross(self, source: str, target: str | None) -> AttentionMap:
        """From each piece of the target, or of the model's own words, to those of the source."""
        source_ids, source_pieces = self._source(source)
        target_ids, target_pieces, target = self._target(source_ids, target)
        (weights,) = self.forcing.attention([source_ids], [target_ids])
        return AttentionMap(
            source, target, (*source_pieces, END), (*target_pieces, END), as_numpy(weights)
        )

    def within(
        self, source: str, target: str | None, *, side: Literal["encoder", "decoder"]
    ) -> AttentionMap:
        """From each piece of the source, or of the target, to those of its own sentence."""
        if side not in ("encoder", "decoder"):
            raise UserError(f"side={side!r}: must be 'encoder' or 'decoder'")
        source_ids, pieces = self._source(source)
        if side == "encoder":
            pieces, weights = (*pieces, END), self.forcing.self_attention(source_ids)
            return AttentionMap(source, source, pieces, pieces, weights)
        target_ids, pieces, target = self._target(source_ids, target)
        pieces = (START, *pieces)
        weights = self.forcing.self_attention(source_ids, target_ids)
        return AttentionMap(target, target, pieces, pieces, weights)

    def _source(self, source: str) -> tuple[list[int], tuple[str, ...]]:
        """The ids and pieces of a sentence to look into."""
        ids = self.tokenizers.source.encode(text_of(source, "the sentence"))
        if not ids or not has_text(source):
            raise UserError("the sentence to align is empty: give one with words")
        return ids, tuple(self.tokenizers.source.spelled(source))

    def _target(
        self, source_ids: list[int], target: str | None
    ) -> tuple[list[int], tuple[str, ...], str]:
        """The ids, pieces and text of a given translation, or of the model's own."""
        tokenizer = self.tokenizers.target
        if target is not None:
            text_of(target, "the target")
            return tokenizer.encode(target), tuple(tokenizer.spelled(target)), target
        ids = self._own(source_ids)
        return ids, tuple(tokenizer.pieces(ids)), tokenizer.decode(ids)
