"""Text in CAPITALS, or With Capitals Like A Title, read as it is usually written.

A vocabulary that was learned from ordinary text spells capitals letter by letter, which no model
reads well. Each word is therefore read in the case in which it has the fewest pieces, and the
translation is written as the source was. So nothing need be learned for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

Case = Literal["upper", "title"]
Spans = Sequence[tuple[int, int]]  # characters of addresses, tags and the like, which stay
Count = Callable[[Sequence[str]], Sequence[int]]  # words → pieces of each

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
FIRST_LETTER = re.compile(r"(?<!\S)\w")
SENTENCE_END = re.compile(r"[.!?…]")


def plain_case(text: str, spans: Spans, count: Count) -> tuple[str, Case | None]:
    """Return a text in its usual case, and the case in which its translation is to be written.

    Capitals among other words are read so too, but not written: they are mostly emphasis. A word
    of capitals alone is an abbreviation, unless it is a single piece in small letters.
    """
    words = [word for word in WORD.finditer(text) if not _within(word.start(), spans)]
    loud = [word[0].isupper() and len(word[0]) > 1 for word in words]
    case: Case | None = None
    if any(loud):
        case = "upper" if all(word[0].isupper() for word in words) else None
    elif _is_title([word[0] for word in words], count):
        case = "title"
    else:
        return text, None
    plain = text
    for i, word in enumerate(words):
        beside = any(loud[max(0, i - 1) : i] + loud[i + 1 : i + 2]) or case == "title"
        if loud[i] or (case and i):
            before = text[words[i - 1].end() : word.start()] if i else "."
            begins = case is not None and bool(SENTENCE_END.search(before))
            written = _usual(word[0], count, known=not beside, begins=begins)
            plain = plain[: word.start()] + written + plain[word.end() :]
    return (text, None) if plain == text else (plain, case)


def _is_title(words: Sequence[str], count: Count) -> bool:
    """Tell whether each word has a capital, and one that is no name: it is simpler without."""
    if not all(word[0].isupper() for word in words):
        return False
    later = words[1:]
    small = count([word.lower() for word in later])
    return any(a < b for a, b in zip(small, count(later), strict=True))


def _usual(word: str, count: Count, *, known: bool, begins: bool) -> str:
    """Return a word in the case of the fewest pieces.

    Args:
        known: only if it is a single piece then.
        begins: a sentence, so that it has a capital in any case.
    """
    as_written, small, capital = count([word, word.lower(), word.capitalize()])
    fewest = min(small, capital)
    equal = fewest == as_written == 1 and not (word.isupper() and len(word) > 1)
    if (fewest > 1 and known) or not (fewest < as_written or equal):
        return word
    return word.lower() if small == fewest and not begins else word.capitalize()


def written(text: str, case: Case, spans: Spans) -> str:
    """Return a translation in the case of its source."""
    parts, position = "", 0
    for start, end in (*spans, (len(text), len(text))):
        words = text[position:start]
        parts += words.upper() if case == "upper" else FIRST_LETTER.sub(_capital, words)
        parts += text[start:end]
        position = end
    return parts


def _capital(match: re.Match[str]) -> str:
    return match[0].upper()


def _within(place: int, spans: Spans) -> bool:
    return any(start <= place < end for start, end in spans)
