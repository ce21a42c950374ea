"""What a person wants of a line's translation, in words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from translate.errors import UserError
from translate.inference.segments import each
from translate.search import Demand
from translate.vocabulary import UNK

log = logging.getLogger(__name__)

Encode = Callable[[str], list[int]]
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Wish:
    """Asked of the translation of one line, spelled as the target tokenizer would spell it.

    Attributes:
        prefix: how it begins.
        phrases: what it contains.
    """

    prefix: str = ""
    phrases: tuple[str, ...] = ()


NO_WISH = Wish()


def paired(lines: Iterable[str], wishes: Wish | Iterable[Wish]) -> Iterator[tuple[str, Wish]]:
    """Each line with what is wished of it; one wish is that of every line.

    Raises:
        UserError: more lines than wishes, or fewer, told when it shows; a string in place of lines.
    """
    lines = each(lines)
    if isinstance(wishes, Wish):
        yield from ((line, wishes) for line in lines)
        return
    for number, (line, wish) in enumerate(zip_longest(lines, wishes), start=1):
        if line is None or wish is None:
            more, less = ("lines", "wishes") if wish is None else ("wishes", "lines")
            raise UserError(
                f"{number} {more} or more, but only {number - 1} {less}: line n of prefixes= and "
                "constraints= is for line n of the input, and may be empty"
            )
        yield line, wish


def demands(
    wish: Wish, segments: int, *, line: int, banned: tuple[Tokens, ...], encode: Encode
) -> Iterator[Demand]:
    """What is demanded of each segment of a line: the first begins with the prefix.

    Raises:
        UserError: phrases for a line in several segments, of which none is theirs; a word that the
            model cannot write.
    """
    if wish.phrases and segments > 1:
        raise UserError(
            f"line {line} is too long to be translated in one piece, so there is no telling where "
            f"{wish.phrases[0]!r} belongs: split the line, or leave its constraints empty"
        )
    prefix = _written(wish.prefix, line, encode)
    phrases = tuple(_written(text, line, encode) for text in wish.phrases)
    for segment in range(segments):
        yield Demand(prefix if segment == 0 else (), phrases, banned)


def never(texts: Iterable[str], encode: Encode) -> tuple[Tokens, ...]:
    """The tokens of phrases that are banned; those it could not write anyway are told."""
    found = []
    for text in texts:
        if unknown := _unknown(text, encode):  # to ban <unk> would ban every such word
            log.warning("%r is no word of this model, which never writes %r", unknown, text)
        else:
            found.append(tuple(encode(text)))
    return tuple(found)


def _written(text: str, line: int, encode: Encode) -> Tokens:
    if unknown := _unknown(text, encode):
        raise UserError(
            f"line {line}: {unknown!r} is no word of this model, so no translation can be asked to "
            f"contain {text!r}: choose other words"
        )
    return tuple(encode(text))


def _unknown(text: str, encode: Encode) -> str | None:
    """The first word that the model has no pieces for, if there is any."""
    return next((word for word in text.split() if UNK in encode(word)), None)
