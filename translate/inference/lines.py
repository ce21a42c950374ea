"""What of a line is translated at once: sentences, or less where that is too much."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise

from sentencex import segment

from translate.data.text import has_text, one_line, unspaced, without_surrogates
from translate.data.tokenizer import Tokenizer
from translate.inference.protection import VERBATIM, Protection
from translate.inference.translation import NOTHING, Translation

log = logging.getLogger(__name__)

WHOLE = Protection([*VERBATIM])  # what no cut goes through, if it can be helped

Lengths = Callable[[Sequence[str]], list[int]]  # texts → pieces of each

BLOCK = 50_000  # characters: thousands of quotation marks cost sentencex quadratic time
SPACE_BEFORE_STOP = re.compile(r"(?<!\s)\s+(?=\.)")
OPENING = {"Ps", "Pi", "Sc"}  # brackets, quotation marks, currencies
INVERTED = {"¿": "?", "¡": "!"}  # what opens a sentence of Spanish, and what closes it
CLAUSE_END = tuple(",;:.!?…–—、，；：。！？،؛؟।")
# a word and the space behind it; in scripts without spaces, what ends with punctuation
UNIT = re.compile(r"[^\s、，；：。！？]*(?:[、，；：。！？]+\s*|\s+|$)")


@dataclass(frozen=True)
class Line:
    """Texts to translate, and what stands around them and stays: white space, protected items.

    Attributes:
        gaps: gaps[i] stands before texts[i], and the last gap behind all.
        texts: without white space around them.
        ids: of each text, without </s>.
    """

    gaps: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[list[int], ...]

    def joined(self, found: Sequence[list[Translation]]) -> list[Translation]:
        """The translations of the line from those of its texts: the i-th best of each together.

        Where a text has fewer than another (one of protected items alone has one), its last stands
        for the rest.
        """
        if not self.texts:
            return [replace(NOTHING, text=self.gaps[0])]
        if self.gaps == ("", ""):
            return found[0]
        most = max(map(len, found))
        alike = ([*some, *some[-1:] * (most - len(some))] for some in found)
        return [self._join(parts) for parts in zip(*alike, strict=True)]

    def _join(self, parts: Sequence[Translation]) -> Translation:
        first, *inner, last = self.gaps
        alone = len(parts) == 1 and not any(map(has_text, self.gaps))
        sure = [part.confidence for part in parts if part.confidence is not None]
        text = first + parts[0].text
        for gap, part in zip(inner, parts[1:], strict=True):
            text += (gap or _space(text, part.text)) + part.text
        return Translation(
            text=text + last,
            score=math.fsum(part.score for part in parts),
            log_prob=math.fsum(part.log_prob for part in parts),
            tokens=tuple(chain.from_iterable(part.tokens for part in parts)),
            token_log_probs=tuple(chain.from_iterable(part.token_log_probs for part in parts)),
            alignment=parts[0].alignment if alone else None,
            finished=all(part.finished for part in parts),
            flags=_together(part.flags for part in parts),
            mended=_together(part.mended for part in parts),
            confidence=min(sure) if len(sure) == len(parts) else None,
            breaks=tuple(self._breaks(parts)),
        )

    def _breaks(self, parts: Sequence[Translation]) -> Iterator[int]:
        """Where in the tokens of all parts a kept text lies between two."""
        before = 0
        for gap, part in zip(self.gaps, parts, strict=False):
            if before and has_text(gap):
                yield before
            yield from (before + place for place in part.breaks)
            before += len(part.tokens)


EMPTY = Line(("",), (), ())


class Cutter:
    """Cuts lines into texts that a model can read.

    Args:
        language: of the source, by its ISO 639-1 code: which abbreviations end no sentence.
        limit: the most pieces of a text.
        sentences: whether each sentence is a text of its own; else only those of a line that is
            longer than the limit.
    """

    def __init__(self, tokenizer: Tokenizer, *, language: str, limit: int, sentences: bool) -> None:
        self._tokenizer, self._language = tokenizer, without_surrogates(language)
        self._limit, self._sentences = limit, sentences

    def __call__(self, line: str, number: int, *, whole: bool = False, asked: bool = False) -> Line:
        """Cut line `number`; a warning tells where something is too long.

        What has neither a letter nor a digit stays as it is: of a row of dots or an emoji a model
        would make a sentence up.

        Args:
            whole: not into sentences, if the line is within the limit.
            asked: something must be in its translation, so that all of it is translated.
        """
        line = one_line(without_surrogates(line))
        if not has_text(line):
            return EMPTY
        split = self._sentences and not whole
        texts = sentences(line, self._language) if split else [line]
        ids = self._ids(texts, asked=asked)
        if max(map(len, ids)) <= self._limit:
            return trimmed(texts, ids)
        found = sentences(line, self._language)
        texts = list(within(found, self._limit - self._tokenizer.front, self._lengths))
        log.warning(
            "line %d has %d pieces, more than the limit of %d: translated in %d segments%s",
            number, sum(map(len, ids)), self._limit, len(texts),
            ", some of them parts of a sentence" if len(texts) > len(found) else "",
        )  # fmt: skip
        return trimmed(texts, self._ids(texts, asked=asked))

    def between(self, parts: Sequence[str]) -> Line:
        """Every second part stays as it is, and the punctuation beside it, which belongs to it.

        Of the others the rest is to be translated, where there are words in it: with the signs that
        Spanish opens a question or an exclamation with, and with those that close it.
        """
        texts: list[str] = []
        for i, part in enumerate(parts):
            words = [place for place, character in enumerate(part) if _in_word(character)]
            kept = i % 2 == 1 or not words
            start = 0 if kept or i == 0 else words[0]
            end = 0 if kept else len(part) if i == len(parts) - 1 else words[-1] + 1
            start, end = _with_inverted(part, start, end)
            texts += part[:start], part[start:end], part[end:]  # every third from the second on
        return trimmed(texts, self._ids(text if i % 3 == 1 else "" for i, text in enumerate(texts)))

    def _ids(self, texts: Iterable[str], *, asked: bool = False) -> list[list[int]]:
        """Those of each text; none where there is nothing to translate."""
        return [
            self._tokenizer.encode(text) if asked or any(map(_in_word, text)) else []
            for text in texts
        ]

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """Without the tag, which each would count again."""
        front = self._tokenizer.front
        found = self._tokenizer.encode_all(texts, threads=1)
        return [len(ids) - front if ids else 0 for ids in found]


def sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the space behind it.

    None ends where a word follows at once (`node.js!Important`), but in scripts without spaces, nor
    within what must stay as it is (`/?Q=1`).
    """
    parts = chain.from_iterable(_segmented(block, language) for block in _blocks(text))
    items = WHOLE.spans(text)
    ends = [
        end
        for end in accumulate(map(len, parts))
        if _may_end(text, end) and _outside(end, items) == end
    ]
    return _cut_at(ends, text)


def _may_end(text: str, place: int) -> bool:
    """Whether a sentence may end there: not where a word goes on at once, as in `node.js`."""
    last, first = text[place - 1 : place], text[place : place + 1]
    return not (last in ".!?" and first.isalnum() and not unspaced(first))


def _cut_at(places: Iterable[int], text: str) -> list[str]:
    """The text in parts that begin there."""
    inner = sorted(place for place in places if 0 < place < len(text))
    return [text[start:end] for start, end in pairwise([0, *inner, len(text)])]


def _outside(place: int, items: Sequence[tuple[int, int]]) -> int:
    """Where a cut at this place does not go through one of the items: before it, or here."""
    before = bisect_left(items, (place,)) - 1
    return items[before][0] if before >= 0 and items[before][1] > place else place


def _blocks(text: str) -> Iterator[str]:
    """Parts of a bounded length, that end with a word where they can."""
    start = 0
    while len(text) - start > BLOCK:
        end = text.rfind(" ", start, start + BLOCK) + 1 or start + BLOCK
        yield text[start:end]
        start = end
    yield text[start:]


def _segmented(text: str, language: str) -> Iterator[str]:
    """By sentencex 1.0, which panics where a wide space stands between an initial and its stop."""
    plain = SPACE_BEFORE_STOP.sub(lambda space: " " * len(space[0]), text)
    start = 0
    for sentence in segment(language, plain):
        yield text[start : start + len(sentence)]
        start += len(sentence)


def within(texts: Sequence[str], limit: int, lengths: Lengths) -> Iterator[str]:
    """The texts, those of more than `limit` pieces in parts.

    A part ends with a clause, else with a word, else anywhere.
    """
    for text, pieces in zip(texts, lengths(texts), strict=True):
        if pieces <= limit or len(text) == 1:
            yield text
            continue
        parts = list(_clauses(text, limit, lengths))
        if len(parts) == 1:
            parts = _anywhere(text, max(1, len(text) * limit // pieces))
        yield from within(parts, limit, lengths)


def _clauses(text: str, limit: int, lengths: Lengths) -> Iterator[str]:
    """Parts as long as may be that end with a clause, or with a word where no clause ends.

    Lengths are those of words added up, which the whole may exceed by a little.
    """
    units = UNIT.findall(text)[:-1]  # the last match is the empty end
    part: list[tuple[str, int]] = []
    total = 0
    for unit, pieces in zip(units, lengths(units), strict=True):
        while part and total + pieces > limit:
            ends = [i for i, (word, _) in enumerate(part, 1) if word.rstrip().endswith(CLAUSE_END)]
            kept = ends[-1] if ends else len(part)
            yield "".join(word for word, _ in part[:kept])
            part = part[kept:]
            total = sum(size for _, size in part)
        part.append((unit, pieces))
        total += pieces
    yield "".join(word for word, _ in part)


def _anywhere(text: str, size: int) -> list[str]:
    """Parts of `size` characters, or a few less where the next must stay whole."""
    items = WHOLE.spans(text)
    places = range(size, len(text), size)
    return _cut_at({_outside(place, items) or place for place in places}, text)


def trimmed(texts: Sequence[str], ids: Sequence[list[int]]) -> Line:
    """The texts without the white space around them, which becomes the gaps.

    A text without ids goes to the gaps too, and invisible characters go nowhere.
    """
    gaps, cores, spelled = [""], [], []
    for text, pieces in zip(texts, ids, strict=True):
        core = text.strip()
        before, _, after = text.partition(core) if core else (text, "", "")
        gaps[-1] += before
        if not has_text(core) or not pieces:
            gaps[-1] += (core if has_text(core) else "") + after
            continue
        cores.append(core)
        spelled.append(pieces)
        gaps.append(after)
    return Line(tuple(gaps), tuple(cores), tuple(spelled))


def _together(words: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(chain.from_iterable(words)))


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"  # vowel signs are marks


def _with_inverted(text: str, start: int, end: int) -> tuple[int, int]:
    """The words of text[start:end] with `¿` and `¡` before them, and what closes these behind."""
    while start < end and start and text[start - 1] in INVERTED:
        start -= 1
    closing = {INVERTED[character] for character in text[start:end] if character in INVERTED}
    while text[end : end + 1] in closing:
        end += 1
    return start, end


def _space(left: str, right: str) -> str:
    """What comes between two texts that had no space between them.

    A space before a word and what opens one, but not in scripts without spaces, nor at the
    beginning of a line.
    """
    if not left:
        return ""
    edges = left[-1:] + right[:1]
    wide = all(unicodedata.east_asian_width(edge) in "FW" for edge in edges)
    return " " if right and (_in_word(right[0]) or _opens(right[0])) and not wide else ""


def _opens(character: str) -> bool:
    return unicodedata.category(character) in OPENING or character in {*INVERTED, '"', "'"}
