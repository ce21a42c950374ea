"""The parts of a line that are translated at once, and those that must stay as they stand.

Sentences are translated by themselves, or less where that is too much. Addresses, tags,
placeholders and numbers are protected: no cut goes through them, and the guard compares them.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any, Literal

from sentencex import segment

from translate.data.plain_text import (
    LATER_WORD,
    UNSPACED,
    has_text,
    one_line,
    unspaced,
    without_surrogates,
)
from translate.data.tokenizer import Tokenizer
from translate.inference import markup
from translate.inference.casing import Case, plain_case, written
from translate.inference.digits import numbers_in, readings
from translate.inference.inline import take_out
from translate.inference.markup import KEPT, TAG, Markup, Reading
from translate.inference.translation import NOTHING, Translation

log = logging.getLogger(__name__)

Lengths = Callable[[Sequence[str]], list[int]]  # texts → pieces of each

LEAST = 8  # pieces of a clause: shorter ones say too little
BLOCK = 50_000  # characters: thousands of quotation marks cost sentencex quadratic time
# more than any writing puts between two spaces, or in scripts without spaces between two signs
UNBROKEN = re.compile(r"\S{251,}")
UNBROKEN_UNSPACED = re.compile(r"[^\s,;:.!?…、，。；：！？]{1001,}")
SPACE_BEFORE_STOP = re.compile(r"(?<!\s)\s+(?=\.)")
OPENING = {"Ps", "Pi", "Sc"}  # brackets, quotation marks, currencies
INVERTED = {"¿": "?", "¡": "!"}  # what opens a sentence of Spanish, and what closes it
CAPITALS = re.compile("[A-ZÀ-ÞΑ-ΫЀ-Я]{2}")
CLAUSE_END = tuple(",;:.!?…–—、，；：。！？،؛؟।")
# a word and the space behind it; in scripts without spaces, what ends with punctuation
UNIT = re.compile(r"[^\s、，；：。！？]*(?:[、，；：。！？]+\s*|\s+|$)")


Kind = Literal["url", "email", "tag", "placeholder", "sign", "name", "number"]

# a letter, digit or underscore of a word with spaces around it; Korean particles have none
WORD = rf"[^\W{UNSPACED[1:-1]}\u1100-\u11ff\uac00-\ud7af]"
# every run is bounded, or begins where a word does, so that no text takes quadratic time
VERBATIM: dict[Kind, str] = {
    # parentheses belong to it in pairs alone, as in wiki/Bank_(geography)
    "url": rf"(?<!{WORD})(?i:https?://|ftp://|www\.)"
    r"(?:[^\s<>\"()、。，；：！？（）「」]|\([^\s<>\"()]*\))*(?:[^\W_][/&#=_-]*|\([^\s<>\"()]*\))",
    "email": rf"(?<!{WORD})(?<![.+-])(?:{WORD}|[.+-]){{1,64}}@"
    rf"(?:(?:{WORD}|-){{1,64}}(?:\.(?:{WORD}|-){{1,64}})+|[\w-]{{1,64}}(?:\.[\w-]{{1,64}})+)",
    "tag": f"{TAG}|{KEPT}",
    # of Python, JavaScript, Jinja and shells; then of printf, for whose flag a space may not stand
    "placeholder": r"\$?\{\{? ?[\w.\[\]]{0,64}(?:![rsa])?(?:[:|,-][^{}\s]{0,32})? ?\}\}?"
    r"|%(?:\(\w{1,64}\)|\d{1,2}\$)?[-+#0]?\d{0,4}(?:\.\d{1,3})?(?:hh?|ll?)?[diouxXeEfFgGcs@]"
    rf"(?!{WORD})",
}
# most texts have neither an item nor a number, and a single class of characters is found fast
TRACE, DIGIT = re.compile(r"[@<&{%]|://|(?i:www\.)"), re.compile(r"\d")


FIRST_WORD = re.compile(r"[^\w\s<&{]*([^\W\d_][\w'’-]*[^\W_])")
SYMBOLS = {"So", "Sm"}  # but those of ASCII, which SIGNS_OR_WORD leaves out
# a run of symbols, with what joins or colours emoji, or a word; never punctuation beside it
SIGNS_OR_WORD = re.compile(
    r"°[CFK]\b|[^\w\s!-/:-@\[-`{-~¡¿«»“”„‘’‹›、，；：。！？]+|\w+(?:[-'’]\w+)*"
)


def never(text: str) -> bool:
    """Tell that it is not so, whatever the text."""
    return False


class Protection:
    """A comparison of a text with its translation.

    URLs, e-mail addresses, markup tags, placeholders ({name}, ${x}, {{ x }}, %s, %1$d) and signs
    must be there verbatim, tags in their order. Numbers are compared but for how languages part
    their digits; those of one digit are left out, for they may become words.

    Args:
        lacks: tells whether the vocabulary lacks a character. Such signs, and the words that have
            such letters, are protected as the kind `sign`.
        rare: tells whether a word was rare in training. Where it has a capital within a sentence,
            it is protected as the kind `name`.
    """

    def __init__(
        self,
        kinds: Collection[Kind],
        lacks: Callable[[str], bool] = never,
        rare: Callable[[str], bool] = never,
    ) -> None:
        verbatim = [pattern for kind, pattern in VERBATIM.items() if kind in kinds]
        self._verbatim = re.compile("|".join(verbatim)) if verbatim else None
        self._numbers = "number" in kinds
        self._lacks = lru_cache(maxsize=1 << 16)(lacks) if "sign" in kinds else None
        self._rare = lru_cache(maxsize=1 << 16)(rare) if "name" in kinds else None
        self._arguments = kinds, lacks, rare

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew in another process: what was looked up stays here."""
        return Protection, self._arguments

    def items(self, text: str) -> list[str]:
        """List what must stay verbatim, in order."""
        return [text[start:end] for start, end in self.spans(text)]

    def without(self, text: str) -> str:
        """Return the text with a bar in place of each item."""
        parts, position = "", 0
        for start, end in self.spans(text):
            parts += f"{text[position:start]} | "
            position = end
        return parts + text[position:]

    def spans(self, text: str, *, names: bool = False) -> list[tuple[int, int]]:
        """Return where the items stand, without names unless they are wanted."""
        spans = list[tuple[int, int]]()
        if self._verbatim and TRACE.search(text):
            spans = [item.span() for item in self._verbatim.finditer(text)]
        if self._lacks is not None and not text.isascii():
            spans += [span for span in self._signs(text, self._lacks) if _apart(span, spans)]
        if names:
            spans += [span for span in self.names(text) if _apart(span, spans)]
        return sorted(spans)

    def names(self, text: str) -> list[tuple[int, int]]:
        """Return where rare words with a capital stand behind another word."""
        rare = self._rare
        if rare is None:
            return []
        words = LATER_WORD.finditer(text)
        return [word.span() for word in words if word[0][0].isupper() and rare(word[0])]

    def _signs(self, text: str, lacks: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
        """Yield the places of symbols, and of signs and words that the vocabulary lacks.

        Runs without anything between them are one: marks of a script part its letters.
        """
        joined: tuple[int, int] | None = None
        for run in SIGNS_OR_WORD.finditer(text):
            if not any(lacks(each) or unicodedata.category(each) in SYMBOLS for each in run[0]):
                continue
            if joined is not None and joined[1] == run.start():
                joined = joined[0], run.end()
                continue
            if joined is not None:
                yield joined
            joined = run.span()
        if joined is not None:
            yield joined

    def first_name(self, text: str) -> list[tuple[int, int]]:
        """Return where a rare word with a capital stands first, which may be a name.

        Not of two words alone, which say too little: they are mostly a greeting.
        """
        word = FIRST_WORD.match(text) if text.count(" ") > 1 else None
        if self._rare is None or word is None or not word[1][0].isupper():
            return []
        return [word.span(1)] if self._rare(word[1]) else []

    def damage(self, source: str, translation: str, asked: str = "") -> list[str]:
        """List what is lost, added or out of order; what is `asked` for may be added.

        Names can only be lost, where nothing is asked for.
        """
        names = [] if asked else [source[start:end] for start, end in self.names(source)]
        lost = [f"lost {name}" for name in names if name not in translation]
        wanted, written = self.items(source), self.items(translation)
        written = _without(written, self.items(asked), wanted)
        if wanted == written:
            return lost
        changed = _changes(wanted, written) + lost
        moved = [item for item in wanted if item[0] == "<"] != [i for i in written if i[0] == "<"]
        return changed or ["tags in another order"] * moved

    def numbers(self, source: str, translation: str, asked: str = "") -> list[str]:
        """List the numbers that are lost or added; those that are `asked` for may be added."""
        if not self._numbers or not (DIGIT.search(source) or DIGIT.search(translation)):
            return []
        # those of an item are part of it
        source, translation = map(self.without, (source, translation))
        read = [
            _changes(wanted, _without(written, numbers_in(asked), wanted))
            for wanted in readings(source)
            for written in readings(translation)
        ]
        return read[0] if all(read) else []


def _apart(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in others)


def _changes(wanted: list[str], written: list[str]) -> list[str]:
    lost, added = Counter(wanted) - Counter(written), Counter(written) - Counter(wanted)
    return [f"lost {item}" for item in lost] + [f"added {item}" for item in added]


def _without(written: list[str], allowed: list[str], wanted: list[str]) -> list[str]:
    """Leave out those beyond the wanted ones that are allowed."""
    spare = (Counter(written) - Counter(wanted)) & Counter(allowed)
    rest = []
    for item in written:
        if spare[item]:
            spare[item] -= 1
        else:
            rest.append(item)
    return rest


WHOLE = Protection([*VERBATIM])  # what no cut goes through, if it can be helped


@dataclass(frozen=True)
class CutLine:
    """Texts to translate, and what stands around them and stays: white space, protected items.

    Attributes:
        gaps: gaps[i] stands before texts[i], and the last gap behind all.
        texts: without white space around them.
        ids: of each text, without </s>.
        xml: whether it is XML, which its texts must be written as.
        references: whether an & is to be written as a reference, as in the source.
        case: in which the translation is to be written; None: as it comes.
        flags: what may be wrong with every translation.
    """

    gaps: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[list[int], ...]
    xml: bool = False
    references: bool = False
    case: Case | None = None
    flags: tuple[str, ...] = ()

    def joined(self, n_best_lists: Sequence[list[Translation]]) -> list[Translation]:
        """Join the translations of the line's texts to its own: the i-th best of each together.

        Where a text has fewer than another (one of protected items alone has one), its last stands
        for the rest.
        """
        if not self.texts:
            return [replace(NOTHING, text=self._as_source(self.gaps[0]), flags=self.flags)]
        if self.gaps == ("", "") and not self.references and self.case is None:
            return n_best_lists[0]
        most = max(map(len, n_best_lists))
        alike = ([*n_best, *n_best[-1:] * (most - len(n_best))] for n_best in n_best_lists)
        return [self._join(parts) for parts in zip(*alike, strict=True)]

    def _join(self, parts: Sequence[Translation]) -> Translation:
        first, *inner, last = self.gaps
        alone = len(parts) == 1 and not any(map(has_text, self.gaps))
        sure = [part.confidence for part in parts if part.confidence is not None]
        text = first + parts[0].text
        for gap, part in zip(inner, parts[1:], strict=True):
            text += (gap or _space(text, part.text)) + part.text
        return Translation(
            text=self._as_source(text + last),
            score=math.fsum(part.score for part in parts),
            log_prob=math.fsum(part.log_prob for part in parts),
            tokens=tuple(chain.from_iterable(part.tokens for part in parts)),
            token_log_probs=tuple(chain.from_iterable(part.token_log_probs for part in parts)),
            alignment=parts[0].alignment if alone else None,
            finished=all(part.finished for part in parts),
            flags=_together([self.flags, *(part.flags for part in parts)]),
            mended=_together(part.mended for part in parts),
            confidence=min(sure) if len(sure) == len(parts) else None,
        )

    def _as_source(self, text: str) -> str:
        """Write a translation in the case and with the references of its source."""
        if self.case is not None:
            text = written(text, self.case, WHOLE.spans(text))
        return markup.written(text) if self.references else text


class Cutter:
    """Cuts lines into texts that a model can read.

    Args:
        language: of the source, by its ISO 639-1 code: which abbreviations end no sentence.
        limit: the most pieces of a text.
        practised: the most pieces of words, when the model has read no longer texts in training;
            addresses and tags, which it need not translate, are not counted.
        sentences: whether each sentence is a text of its own; else only those of a line that is
            longer than the limit.
        markup: how lines are read.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        language: str,
        limit: int,
        sentences: bool,
        practised: int | None = None,
        markup: Markup | Literal["references"] = "references",
    ) -> None:
        self._markup = markup
        self._tokenizer, self._language = tokenizer, without_surrogates(language)
        self._sentences, self._most = sentences, limit
        self._limit = limit if practised is None else min(practised, limit)

    def __call__(
        self, line: str, number: int, *, whole: bool = False, asked: bool = False
    ) -> CutLine:
        """Cut line `number`; a warning tells where something is too long.

        What has neither a letter nor a digit stays as it is: of a row of dots or an emoji a model
        would make a sentence up.

        Args:
            whole: not into sentences, if the line is within the limit.
            asked: something must be in its translation, so that all of it is translated.
        """
        reading, case = self.read(line), None
        text = reading.text
        if not asked and (runs := unbroken(text)):
            cut = self._cut_around(runs, text, number, whole=whole)
            return replace(cut, xml=reading.xml, references=reading.references)
        if _has_capitals(text) and not asked:
            text, case = plain_case(text, WHOLE.spans(text), self._count)
        cut = self._cut(text, number, whole=whole, asked=asked)
        return replace(cut, xml=reading.xml, references=reading.references, case=case)

    def read(self, line: str) -> Reading:
        """Return what a line stands for."""
        marked = "<" in line or "&" in line or self._markup == "xml"
        return markup.read(line, self._markup) if marked else Reading(line)

    def _cut(self, line: str, number: int, *, whole: bool, asked: bool) -> CutLine:
        line = one_line(without_surrogates(line))
        if not has_text(line):
            return CutLine(("",), (), ())
        split = self._sentences and not whole
        texts = sentences(line, self._language) if split else [line]
        ids = self._ids(texts, asked=asked)
        front = self._tokenizer.front
        if max(self._lengths(texts)) + front <= self._limit:
            return trimmed(texts, ids)
        whole_sentences = sentences(line, self._language)
        texts = list(within(whole_sentences, self._limit - front, self._lengths))
        log.warning(
            "line %d has %d pieces, more than the limit of %d: translated in %d segments%s",
            number, sum(map(len, ids)), self._limit, len(texts),
            ", some of them parts of a sentence" if len(texts) > len(whole_sentences) else "",
        )  # fmt: skip
        return trimmed(texts, self._ids(texts, asked=asked))

    def _cut_around(
        self, runs: Sequence[tuple[int, int]], line: str, number: int, *, whole: bool
    ) -> CutLine:
        """Cut what stands between runs that stay as they are."""
        gaps, texts, ids = [""], list[str](), list[list[int]]()
        places = [0, *chain.from_iterable(runs), len(line)]
        for i, (start, end) in enumerate(pairwise(places)):
            part = line[start:end]
            if i % 2 or not has_text(part):  # every other one is a run
                gaps[-1] += part
                continue
            cut = self._cut(part, number, whole=whole, asked=False)
            gaps[-1] += cut.gaps[0]
            gaps += cut.gaps[1:]
            texts += cut.texts
            ids += cut.ids
        kept = sum(end - start for start, end in runs)
        flags = (f"kept {kept:,} characters without a word's end",)
        return CutLine(tuple(gaps), tuple(texts), tuple(ids), flags=flags)

    def uncut(self, text: str) -> CutLine:
        """Return a text as it is, all of which is translated."""
        return CutLine(("", ""), (text,), (self._tokenizer.encode(text),))

    def clauses(self, text: str, limit: int | None = None) -> CutLine:
        """Cut a text into clauses of at most so many pieces, where that can be."""
        most = self._limit - self._tokenizer.front if limit is None else max(LEAST, limit)
        texts = list(within([text], most, self._lengths))
        return trimmed(texts, self._ids(texts))

    def _ids(self, texts: Iterable[str], *, asked: bool = False) -> list[list[int]]:
        """Return the ids of each text; none where there is nothing to translate."""
        return [self._tokenizer.encode(text) if asked or has_words(text) else [] for text in texts]

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """Count pieces without the tag, which each would count again, and without items.

        With all items, a text of the most pieces that can be read counts as many as the limit.
        """
        pieces = self._count(texts)
        if self._limit == self._most:
            return pieces
        words = self._count([take_out(text, WHOLE.spans(text)).text for text in texts])
        return [
            max(of_words, -(-whole * self._limit // self._most))
            for of_words, whole in zip(words, pieces, strict=True)
        ]

    def _count(self, texts: Sequence[str]) -> list[int]:
        encoded = self._tokenizer.encode_all(texts, threads=1)
        return [len(ids) - self._tokenizer.front if ids else 0 for ids in encoded]


def unbroken(line: str) -> list[tuple[int, int]]:
    """Return where a line has more without a word's end than any writing, addresses apart.

    Nothing learned is of use there: a model would take minutes to make something up.
    """
    runs: list[tuple[int, int]] = []
    for run in UNBROKEN.finditer(line):
        spans = [run.span()]
        if any(map(unspaced, run[0])):
            within_run = UNBROKEN_UNSPACED.finditer(line, *run.span())
            spans = [part.span() for part in within_run]
        runs += [span for span in spans if UNBROKEN.search(WHOLE.without(line[slice(*span)]))]
    return runs


def sentences(text: str, language: str) -> list[str]:
    """Split a text into sentences, each with the space behind it.

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
    """Tell whether a sentence may end there: not where a word goes on at once, as in `node.js`."""
    last, first = text[place - 1 : place], text[place : place + 1]
    return not (last in ".!?" and first.isalnum() and not unspaced(first))


def _cut_at(places: Iterable[int], text: str) -> list[str]:
    """Split the text in parts that begin there."""
    inner = sorted(place for place in places if 0 < place < len(text))
    return [text[start:end] for start, end in pairwise([0, *inner, len(text)])]


def _outside(place: int, items: Sequence[tuple[int, int]]) -> int:
    """Move a cut at this place before an item that it would go through."""
    before = bisect_left(items, (place,)) - 1
    return items[before][0] if before >= 0 and items[before][1] > place else place


def _blocks(text: str) -> Iterator[str]:
    """Split the text in parts of a bounded length, that end with a word where they can."""
    start = 0
    while len(text) - start > BLOCK:
        end = text.rfind(" ", start, start + BLOCK) + 1 or start + BLOCK
        yield text[start:end]
        start = end
    yield text[start:]


def _segmented(text: str, language: str) -> Iterator[str]:
    """Yield the sentences of a text, as it has them, by the rules of its language."""
    plain = SPACE_BEFORE_STOP.sub(lambda space: " " * len(space[0]), text)
    start = 0
    for sentence in segment(language, plain):
        yield text[start : start + len(sentence)]
        start += len(sentence)


def within(texts: Sequence[str], limit: int, lengths: Lengths) -> Iterator[str]:
    """Yield the texts, those of more than `limit` pieces in parts.

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
    """Yield parts as long as may be that end with a clause, or a word where no clause ends.

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
    """Split in parts of `size` characters, or a few less where the next must stay whole."""
    items = WHOLE.spans(text)
    places = range(size, len(text), size)
    return _cut_at({_outside(place, items) or place for place in places}, text)


def trimmed(texts: Sequence[str], ids: Sequence[list[int]]) -> CutLine:
    """Strip the texts of the white space around them, which becomes the gaps.

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
    return CutLine(tuple(gaps), tuple(cores), tuple(spelled))


def _together(words: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return each once, in order."""
    return tuple(dict.fromkeys(chain.from_iterable(words)))


def _has_capitals(text: str) -> bool:
    """Tell whether a word may be in capitals, or the beginning of every word."""
    return bool(CAPITALS.search(text)) or not any(word[0].islower() for word in text.split())


def has_words(text: str) -> bool:
    """Tell whether there is a letter or a digit in a text."""
    return any(map(_in_word, text))


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"  # vowel signs are marks


def _space(left: str, right: str) -> str:
    """Return what comes between two texts that had no space between them.

    A space before a word and what opens one, but not in scripts without spaces, nor at the
    beginning of a line.
    """
    if not left or not right:
        return ""
    first = right[0]
    opens = unicodedata.category(first) in OPENING or first in {*INVERTED, '"', "'"}
    wide = all(unicodedata.east_asian_width(edge) in "FW" for edge in (left[-1], first))
    return " " if (_in_word(first) or opens) and not wide else ""
