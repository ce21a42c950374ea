"""Unknown words, replaced through the attention.

Luong et al. 2015, "Addressing the rare word problem in neural machine translation", and Jean et
al. 2015: a produced <unk> stands for the source word it looked at most; a dictionary translates
that word, else it is copied, which is right for names and numbers.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from translate.data.plain_text import one_line, read_lines, spells_a_word
from translate.data.tokenizer import UNKNOWN, WORD_START, Tokenizer
from translate.errors import UserError
from translate.inference.text_constraints import occurrences
from translate.models.head import NO_ATTENTION
from translate.vocabulary import UNK

log = logging.getLogger(__name__)

PUNCTUATION = re.compile(r"\W*")


class UnknownWords:
    """The replacement of each <unk>.

    Args:
        dictionary: source word → translation. A word is looked up as it stands, then in lower case,
            then both without the punctuation around it; one that is not in it is copied.
    """

    def __init__(self, dictionary: Mapping[str, str]) -> None:
        self.dictionary = dictionary

    @classmethod
    def read(cls, path: str | Path) -> UnknownWords:
        """Read a dictionary file: on each line a source word, a tab and its translation.

        Raises:
            UserError: the file cannot be read, a line is not of that form, or two disagree.
        """
        dictionary: dict[str, str] = {}
        for number, line in enumerate(read_lines(path, strict=True), start=1):
            if not line.strip():
                continue
            columns = [one_line(column).strip() for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                raise UserError(
                    f"{path}, line {number}: {line!r} must be a source word, a tab and its "
                    "translation"
                )
            source, target = columns
            if dictionary.setdefault(source, target) != target:
                raise UserError(
                    f"{path}, line {number}: {source!r} is {target!r} here but "
                    f"{dictionary[source]!r} before: keep one of the two"
                )
        return cls(dictionary)

    def read_by(self, tokenizer: Tokenizer) -> UnknownWords:
        """Return the same, its source words as this tokenizer reads them in a sentence.

        A warning tells of words that it reads alike, of which the first stands for both.
        """
        dictionary: dict[str, str] = {}
        for word, translation in self.dictionary.items():
            read = tokenizer.normalised(word)
            if dictionary.setdefault(read, translation) != translation:
                log.warning(
                    "the model reads %r as %r, which the dictionary translates by %r: it never "
                    "writes %r",
                    word, read, dictionary[read], translation,
                )  # fmt: skip
        return UnknownWords(dictionary)

    def replace(
        self,
        source: Sequence[str],
        tokens: Sequence[int],
        alignment: Float[np.ndarray, "L H T S"] | None,
        tokenizer: Tokenizer,
        *,
        front: int = 0,
        prefix: int = 0,
        banned: Sequence[str] = (),
    ) -> str:
        """Write `tokens`, with a source word in place of each word that holds an <unk>.

        An <unk> without any attention (local-m beyond the source's end) stays, and so does one
        whose word is banned.

        Args:
            source: the source pieces as the sentence spells them, the unknown ones too.
            tokens: the translation, without </s>.
            alignment: the attention to follow, mean of all layers and heads; </s> comes last on
                both sides and does not count.
            tokenizer: of the target.
            front: so many source pieces, a tag, are no words either.
            prefix: so many tokens were given and stay as they are.
            banned: texts that may not be written.

        Raises:
            UserError: the model has no attention.
        """
        if alignment is None:
            raise UserError(
                "replace_unknown=true needs the decoder's attention, to trace <unk> to the "
                f"source: leave it out ({NO_ATTENTION})"
            )
        weights, target = alignment.mean((0, 1)), tokenizer.pieces(tokens)
        begins = [piece.startswith(WORD_START) for piece in target] + [False]
        # a whole word takes the place of what was to go on with the last one of the prefix
        begins[prefix] |= 0 < prefix < len(target) and _one_word(*target[prefix - 1 : prefix + 1])
        parts: list[tuple[int, str]] = []  # each with its first piece
        end = 0
        for start, stop in spelling_spans(target, prefix):
            rows = [row for row in range(start, stop) if tokens[row] == UNK]
            written = self._looked_at(source, weights, rows, front) if rows else None
            if written is not None and not occurrences(banned, written):
                parts += (end, tokenizer.decode(tokens[end:start])), (start, written)
                end = stop
        parts.append((end, tokenizer.decode(tokens[end:])))
        text = ""
        for first, part in parts:
            if part:
                text += " " + part if text and begins[first] else part
        plain = tokenizer.decode(tokens)  # a banned text may be several words, of which some come
        return plain if occurrences(banned, text) > occurrences(banned, plain) else text

    def _looked_at(
        self, source: Sequence[str], weights: Float[np.ndarray, "T S"], rows: list[int], front: int
    ) -> str | None:
        """Translate the source word that these rows look at most; None: they look nowhere."""
        words = [(first, last) for first, last in spelling_spans(source) if first >= front]
        received = [weights[rows, first:last].sum() for first, last in words]
        if not any(received):
            return None
        first, last = words[int(np.argmax(received))]
        spelled = "".join(source[first:last]).split(WORD_START)
        return " ".join(map(self.translation, filter(None, spelled)))

    def translation(self, word: str) -> str:
        """Return the dictionary's entry for a source word, or the word itself."""
        core, before = _parted(word)
        core, after = (part[::-1] for part in _parted(core[::-1]))
        return self._entry(word) or before + (self._entry(core) or core) + after

    def _entry(self, word: str) -> str | None:
        return self.dictionary.get(word) or self.dictionary.get(word.lower())


def _parted(word: str) -> tuple[str, str]:
    """Return a word without the punctuation before it, and that."""
    mark = PUNCTUATION.match(word)
    before = mark[0] if mark else ""
    return word[len(before) :], before


def spelling_spans(pieces: Sequence[str], prefix: int = 0) -> list[tuple[int, int]]:
    """Return the half-open ranges of pieces that make one word each; punctuation is apart.

    The first `prefix` pieces are words of their own.

    Neighbours are one word where no space comes between them and what meets are letters, marks or
    digits, or an <unk>. In scripts without spaces (Chinese, Japanese) each piece is a word of its
    own; of a vocabulary of whole words, unknown neighbours are one piece.
    """
    starts = [
        i for i in range(len(pieces)) if i in (0, prefix) or not _one_word(pieces[i - 1], pieces[i])
    ]
    return list(itertools.pairwise([*starts, len(pieces)]))


def _one_word(left: str, right: str) -> bool:
    if right.startswith(WORD_START):
        return False
    return left == WORD_START or (_spells(left, -1) and _spells(right, 0))


def _spells(piece: str, edge: int) -> bool:
    """Tell whether the character at an edge of a piece is of a word, in a script with spaces."""
    return piece.removeprefix(WORD_START) == UNKNOWN or spells_a_word(piece[edge])
