"""Banned texts in whatever pieces they are written: found in the text, and banned as found.

A search bans sequences of tokens, those that the tokenizer itself would spell a text with. A model
that was trained on others (subword sampling) knows more ways to write it, and where words have no
spaces, a piece may hold it in its middle.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from translate.data.text import spells_a_word, unspaced
from translate.data.tokenizer import BYTES, WORD_START, Tokenizer
from translate.inference.batches import Segment
from translate.search import Constraint, Hypothesis
from translate.search.constraints import Tokens
from translate.vocabulary import UNK

log = logging.getLogger(__name__)

TRIES = 20  # searches of one text: each rules at least one spelling out

Find = Callable[[list[Segment]], list[list[Hypothesis]]]


class Bans:
    """What is banned, as text.

    Args:
        texts: each is meant as whole words, or in a script without spaces as a run of characters.
    """

    def __init__(self, target: Tokenizer, texts: Iterable[str]) -> None:
        self._target = target
        self._texts = [text for text in map(self._as_written, texts) if text]

    def _as_written(self, text: str) -> str:
        """As the tokenizer normalises it; a word that it has no pieces for may be part of one."""
        ids = self._target.encode(text)
        return text.strip() if UNK in ids else self._target.decode(ids).strip()

    def kept(self, find: Find, segments: list[Segment]) -> list[list[Hypothesis]]:
        """What `find` finds for each, searched again as long as something banned is written.

        After `TRIES` it stays, with a warning.
        """
        found, stricter = find(segments), list(segments)
        if not self._texts:
            return found
        for _ in range(TRIES):
            escaped = {
                i: more
                for i, n_best in enumerate(found)
                if (more := self._stricter(stricter[i].constraint, n_best)) is not None
            }
            if not escaped:
                return found
            for i, constraint in escaped.items():
                stricter[i] = stricter[i]._replace(constraint=constraint)
            again = find([stricter[i] for i in escaped])
            for i, n_best in zip(escaped, again, strict=True):
                found[i] = n_best
        for i in escaped:
            log.warning(
                "search.rules.banned: the model finds ever new ways to write a banned text in the "
                "translation of %r, which may contain it",
                segments[i].text,
            )
        return found

    def within(self, tokens: Tokens) -> bool:
        """Whether these tokens, a text of their own, spell something banned."""
        return any(self._runs(tokens, 0))

    def _stricter(self, constraint: Constraint, n_best: Sequence[Hypothesis]) -> Constraint | None:
        """Without what these translations spelled banned texts with; None where there is none."""
        spelled = {run for one in n_best for run in self._runs(one.tokens, len(constraint.prefix))}
        banned = {tokens for tokens, anywhere in spelled if anywhere} - {*constraint.banned}
        glued = {tokens for tokens, anywhere in spelled if not anywhere} - {*constraint.glued}
        if not banned | glued:
            return None
        return replace(
            constraint,
            banned=(*constraint.banned, *sorted(banned)),
            glued=(*constraint.glued, *sorted(glued - {*constraint.banned})),
        )

    def _runs(self, tokens: Tokens, prefix: int) -> Iterator[tuple[Tokens, bool]]:
        """The tokens of each banned text behind the prefix, and whether they are it anywhere.

        If not, they are the end of another word where a letter comes before them.
        """
        spans, text = self._spans(tokens)
        for start, end in chain.from_iterable(places(one, text) for one in self._texts):
            holding = [i for i, (a, b) in enumerate(spans) if a < end and start < b]
            first, last = holding[0], holding[-1]
            if last < prefix:
                continue
            word_begins = spans[first][0] == start and spells_a_word(text[start])
            yield tuple(tokens[first : last + 1]), not word_begins

    def _spans(self, tokens: Tokens) -> tuple[list[tuple[int, int]], str]:
        """Where each token stands in the text, and the text; of bytes all of a run together."""
        spans: list[tuple[int, int]] = []
        text, run = "", bytearray()
        names = self._target.pieces(tokens)
        for i, name in enumerate(names):
            if name in BYTES:
                run.append(BYTES.index(name))
                if names[i + 1 : i + 2] and names[i + 1] in BYTES:
                    continue
                piece, count = run.decode("utf-8", "replace"), len(run)
                run = bytearray()
            else:
                # no text can be banned that has an unknown word
                piece = "\ufffd" if tokens[i] == UNK else name.replace(WORD_START, " ")
                count = 1
            spans += [(len(text), len(text) + len(piece))] * count
            text += piece
        return spans, text


def places(wanted: str, text: str) -> Iterator[tuple[int, int]]:
    """Where it stands in a text, and is no part of a longer word; a sign is none anywhere."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        longer = after and spells_a_word(wanted[-1]) and spells_a_word(after)
        if not longer and not (before and _goes_on(before, wanted[0])):
            yield start, end
        start = text.find(wanted, start + 1)


def _goes_on(before: str, first: str) -> bool:
    """Whether a word that ends with one character goes on with the other.

    A Korean word begins behind a space; its particles follow words of any script.
    """
    if unspaced(first):
        return False
    if spells_a_word(first):
        return spells_a_word(before)
    return all(unicodedata.category(character)[0] in "LMN" for character in (before, first))
