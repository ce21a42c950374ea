"""Demands on the translation of a line, in words: its prefix, its phrases, and what is banned."""

from __future__ import annotations

import itertools
import logging
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from translate.data.plain_text import spells_a_word, unspaced
from translate.data.tokenizer import BYTES, WORD_START, Tokenizer
from translate.errors import UserError
from translate.inference.batches import each, text_of
from translate.search import Constraint
from translate.search.constraints import Joints, Tokens
from translate.vocabulary import UNK

log = logging.getLogger(__name__)

STOP = "。"  # a text before another with no space between them
CLOSING = ".,;:!?…)]}%"  # signs that no space stands before


@dataclass(frozen=True)
class TextConstraint:
    """Demands on the translation of one line, spelled as the target tokenizer would spell it.

    Attributes:
        prefix: how it begins.
        phrases: what it contains.

    Raises:
        UserError: one of them is no text, or the phrases are a single one.
    """

    prefix: str = ""
    phrases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        text_of(self.prefix, "prefix")
        object.__setattr__(self, "phrases", tuple(each(self.phrases)))

    @property
    def words(self) -> str:
        """All words that are asked for."""
        return " ".join((self.prefix, *self.phrases))


NO_CONSTRAINT = TextConstraint()


def paired(
    lines: Iterable[str], constraints: Iterable[TextConstraint]
) -> Iterator[tuple[str, TextConstraint]]:
    """Pair each line with its constraint.

    Raises:
        UserError: more lines than constraints, or fewer, when it shows; a string, not lines.
    """
    pairs = itertools.zip_longest(each(lines), constraints)
    for number, (line, constraint) in enumerate(pairs, start=1):
        if line is None or constraint is None:
            raise UserError(
                f"prefixes= and constraints= need a line for each of the input, and line {number} "
                f"has no {'input' if line is None else 'constraint'}: it may be empty"
            )
        if not isinstance(constraint, TextConstraint):
            raise UserError(f"constraint {number} is {constraint!r}: give a TextConstraint")
        yield line, constraint


class ConstraintEncoder:
    """The spelling of constraints, and of what is banned, in pieces of the target tokenizer.

    What a phrase matches depends on its script and on the vocabulary:

    - It is whole words: "eine" is not in "einem", and does not ban it. A banned word is not written
      behind an opening bracket either.
    - In a script without spaces between words (Chinese, Thai) it is a run of characters, wherever
      it begins and ends.
    - In Korean it may go on with particles.
    - A sign that begins a banned phrase is meant with a space before it and without; a full stop or
      a comma that is asked for stands without.
    - In a vocabulary of whole words a banned word is banned with the signs around it.

    A banned phrase is banned in the tokenizer's best pieces; where a model writes it in others, as
    one trained with subword sampling may, `banned_in` finds it, and the translation is flagged.

    Args:
        banned: texts that no translation may hold; a warning tells of what it could not write.
        max_length: the most tokens that the model can read, <s> among them; None: any number.
        unknown_replaced: whether <unk> stands for a word, which it then goes on with.

    Attributes:
        nothing_asked: the constraint of a text of which nothing is asked: what is banned.

    Raises:
        UserError: a banned text has nothing to write.
    """

    def __init__(
        self,
        target: Tokenizer,
        banned: Iterable[str],
        *,
        max_length: int | None = None,
        unknown_replaced: bool = False,
    ) -> None:
        self._target, self._unknown_replaced = target, unknown_replaced
        self._most = math.inf if max_length is None else max_length - 1
        banned = tuple(banned)
        anywhere, glued = self._never(banned)
        joints = self._joints if anywhere else None
        self.nothing_asked = Constraint((), (), tuple(anywhere), tuple(glued), joints)
        self._as_written = {text: self._normalised(text) for text in banned}

    def __call__(
        self, constraint: TextConstraint, segments: int, line: int
    ) -> Iterator[Constraint]:
        """Yield the constraint of each segment of a line: the first begins with the prefix.

        A warning tells of a line without any, whose translation holds nothing.

        Raises:
            UserError: phrases for a line in several segments, of which none is theirs; a word that
                the model cannot write, a text without any, or more than it can; a banned phrase.
        """
        if not segments:
            log.warning(
                "line %d is empty, and so is its translation: %r is not in it",
                line, constraint.words.strip(),
            )  # fmt: skip
            return
        if constraint.phrases and segments > 1:
            raise UserError(
                f"line {line} is too long to be translated as a whole, so it is unclear where "
                f"{constraint.phrases[0]!r} belongs: split the line, or leave its constraints "
                "empty"
            )
        prefix = tuple(self._target.encode(constraint.prefix))
        phrases = tuple(map(self._inside, constraint.phrases))
        self._check(constraint, prefix, phrases, line)
        other = self.nothing_asked
        if phrases:
            other = replace(other, phrases=phrases, joints=self._joints)
        yield replace(other, prefix=prefix)
        yield from itertools.repeat(other, segments - 1)

    def with_phrases(self, constraint: Constraint, texts: Iterable[str]) -> Constraint | None:
        """Return a constraint with further phrases; None where the model cannot write them."""
        phrases = tuple(map(self._inside, texts))
        asked = replace(constraint, phrases=(*constraint.phrases, *phrases), joints=self._joints)
        cannot = any(not phrase or UNK in phrase for phrase in phrases)
        return None if cannot or asked.tokens_needed > self._most else asked

    def banned_in(self, text: str, prefix: Tokens = ()) -> list[str]:
        """List what is banned and in a translation all the same, but for a prefix it was given."""
        wanted = self._target.decode(prefix)
        return [
            banned
            for banned, written in self._as_written.items()
            if occurrences([written], text) > occurrences([written], wanted)
        ]

    def _normalised(self, text: str) -> str:
        """Return a text as the tokenizer would write it, unless it has no pieces for it."""
        ids = self._target.encode(text)
        return text.strip() if UNK in ids else self._target.decode(ids).strip()

    def _check(
        self, constraint: TextConstraint, prefix: Tokens, phrases: Sequence[Tokens], line: int
    ) -> None:
        """Raise a UserError where no translation can hold what is asked for, spelled like this."""
        asked = [(constraint.prefix, prefix)] if constraint.prefix.strip() else []
        for text, tokens in [*asked, *zip(constraint.phrases, phrases, strict=True)]:
            if unknown := self._unknown(text):
                raise UserError(
                    f"line {line}: {unknown!r} is not in this model's vocabulary, so no "
                    f"translation can contain {text!r}: choose other words"
                )
            if not tokens:
                raise UserError(f"line {line}: {text!r} contains nothing to write: leave it out")
        needed = Constraint(prefix, tuple(phrases), joints=self._joints).tokens_needed
        if needed > self._most:
            raise UserError(
                f"line {line}: prefix and phrases have {needed} pieces, and this model writes at "
                f"most {self._most}: shorten them"
            )
        for text, tokens in zip(constraint.phrases, phrases, strict=True):
            if banned := self.banned_in(self._target.decode(tokens)):
                raise UserError(
                    f"line {line}: the phrase {text!r} is asked for, but search.rules.banned has "
                    f"{banned[0]!r}: leave one of them out"
                )

    def _never(self, banned: Iterable[str]) -> tuple[dict[Tokens, str], dict[Tokens, str]]:
        """Spell banned texts, and those right behind a sign, if not spelled so elsewhere too."""
        anywhere: dict[Tokens, str] = {}
        glued: dict[Tokens, str] = {}
        for text in banned:
            if not self._target.encode(text):
                raise UserError(
                    f"search.rules.banned: {text!r} contains nothing to write: leave it out"
                )
            here, behind_a_sign = self._spellings(text)
            if not here:
                log.warning(
                    "%r is not in this model's vocabulary, so it never writes %r",
                    self._unknown(text),
                    text,
                )
            anywhere |= dict.fromkeys(here, text)
            glued |= dict.fromkeys(behind_a_sign, text)
        return anywhere, {tokens: glued[tokens] for tokens in glued if tokens not in anywhere}

    def _spellings(self, text: str) -> tuple[list[Tokens], list[Tokens]]:
        """Return what to ban anywhere, and what but behind a letter, for a banned text."""
        if self._target.whole_words:
            return self._among_words(text), []
        if self._unknown(text):  # to ban <unk> would ban every such word
            return [], []
        spelled, behind_a_sign = tuple(self._target.encode(text)), self._behind_a_sign(text)
        first = text.strip()[0]
        if spells_a_word(first):
            return [spelled], [behind_a_sign]
        if unspaced(first) or unicodedata.category(first)[0] not in "LMN":
            return [spelled, behind_a_sign, *self._holding(text)], []
        return [spelled], []

    def _holding(self, text: str) -> list[Tokens]:
        """Return the pieces in which a text stands that need not be a word by itself."""
        whole = self._target.decode(self._target.encode(text)).strip()
        return [(token,) for token, piece in enumerate(self._written) if any(places(whole, piece))]

    @cached_property
    def _written(self) -> list[str]:
        """The text that each token writes alone; special ones write nothing."""
        return [self._target.decode([token]) for token in range(len(self._target))]

    def _among_words(self, text: str) -> list[Tokens]:
        """Spell a text in a vocabulary of whole words, where a sign can be part of one."""
        words = [piece.removeprefix(WORD_START) for piece in self._target.spelled(text)]
        fits: list[Callable[[str, str], bool]] = [str.__contains__]
        if len(words) > 1:
            fits = [str.endswith, *[str.__eq__] * (len(words) - 2), str.startswith]
        names = self._target.pieces(range(len(self._target)))
        vocabulary = {
            token: name.removeprefix(WORD_START)
            for token, name in enumerate(names)
            if name.startswith(WORD_START) and token != UNK
        }
        choices = (
            [token for token, name in vocabulary.items() if fit(name, word)]
            for fit, word in zip(fits, words, strict=True)
        )
        return [
            tokens
            for tokens in itertools.product(*choices)
            if any(places(" ".join(words), " ".join(vocabulary[token] for token in tokens)))
        ]

    def _unknown(self, text: str) -> str | None:
        """Return the first word that the model has no pieces for, if there is any."""
        return next((word for word in text.split() if UNK in self._target.encode(word)), None)

    def _inside(self, text: str) -> Tokens:
        """Return a text's tokens inside another; before some scripts and signs comes no space."""
        first = text.strip()[:1]
        if first and (unspaced(first) or first in CLOSING):
            return self._behind_a_sign(text)
        return tuple(self._target.encode(text))

    def _behind_a_sign(self, text: str) -> Tokens:
        """Return the tokens of a text right behind another, if the tokenizer cuts between them."""
        before, both = (self._target.encode(STOP + after) for after in ("", text.strip()))
        apart = both[: len(before)] == before and not self._target.whole_words
        return tuple(both[len(before) :] if apart else self._target.encode(text))

    @cached_property
    def _joints(self) -> Joints | None:
        pieces = self._target.pieces(range(len(self._target)))
        is_open = [piece in BYTES or spells_a_word(piece[-1]) for piece in pieces]
        onward = list(map(_goes_on, pieces))
        onward[UNK] = self._unknown_replaced and not self._target.whole_words
        return Joints(np.array(is_open), np.array(onward)) if any(onward) else None


def _goes_on(piece: str) -> bool:
    """Tell whether a piece goes on with a word; bytes do that nearly all begin letters."""
    if piece not in BYTES:
        return spells_a_word(piece[0])
    byte = BYTES.index(piece)
    return chr(byte).isalnum() if byte < 0x80 else 0xC3 <= byte < 0xE2


def occurrences(texts: Iterable[str], text: str) -> int:
    """Count how often the texts stand in another, as what is banned does (`places`)."""
    wanted = filter(None, map(str.strip, texts))
    return sum(1 for one in wanted for _ in places(one, text))


def places(wanted: str, text: str) -> Iterator[tuple[int, int]]:
    """Find where it stands in a text, and is no part of a longer word; a sign is none anywhere."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        longer = after and spells_a_word(wanted[-1]) and spells_a_word(after)
        if not longer and not (before and _same_word(before, wanted[0])):
            yield start, end
        start = text.find(wanted, start + 1)


def _same_word(before: str, first: str) -> bool:
    """Tell whether a word that ends with one character goes on with the other.

    A Korean word begins behind a space; its particles follow words of any script.
    """
    if unspaced(first):
        return False
    if spells_a_word(first):
        return spells_a_word(before)
    return all(unicodedata.category(character)[0] in "LMN" for character in (before, first))
