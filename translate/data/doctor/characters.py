"""Characters no sentence has: controls, wrong encodings, mixed scripts, mark-up, cells' quotes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from translate.data.doctor.finding import Finding, Splits, lines_of, sides
from translate.data.text import INVISIBLE

# Bytes of UTF-8 read as Windows-1252: a first byte Ã, â, Ð …, then a continuation byte's letter.
CONTINUATION = "[\u0080-\u00bf\u0152-\u0178\u02c6\u02dc\u2013-\u2122]"
MOJIBAKE = re.compile(f"[\u00c2-\u00f4]{CONTINUATION}")
THREE_BYTES = re.compile(f"[\u00e2\u00e3]{CONTINUATION}{{2}}")  # â€™; amanhã” is a word and a quote
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&(?:#\d+|[a-zA-Z]{2,8});")
SPELLING = "\u180e\u200c\u200d"  # of Mongolian, Persian and emoji, though not to be seen
STRAY = re.compile(f"(?![{SPELLING}]){INVISIBLE.pattern}")
ALIKE = ("LATIN", "CYRILLIC", "GREEK")  # scripts whose letters look alike
WORD = re.compile(r"\w+")


def anomalies(splits: Splits) -> Iterator[Finding]:
    """Lines with a character that is most likely a mistake, and which."""
    notes = [
        (split, index, f"{side}: {strange}")
        for split, index, side, text in sides(splits)
        if (strange := anomaly(text))
    ]
    advice = "fix the files, or replace the characters with data.cleaning.replace"
    yield Finding("characters", "strange characters", advice, lines_of(splits, notes))


def quoted(splits: Splits) -> Iterator[Finding]:
    """Sentences in quotation marks where most of their side are, as cells of a table may be."""
    found = [
        (split, index, side)
        for split, index, side, text in sides(splits)
        if len(text) > 1 and text[0] == text[-1] == '"'
    ]
    often = Counter((split, side) for split, _, side in found)
    notes = [
        (split, index, f"{side}: in quotation marks")
        for split, index, side in found
        if often[split, side] > len(splits[split]) / 2
    ]
    advice = "table cells are read literally: write the table without quotation marks"
    yield Finding("quoted", "sentences in quotation marks", advice, lines_of(splits, notes))


def anomaly(text: str) -> str:
    """What is strange about a text, or nothing."""
    if text.isascii() and text.isprintable() and "<" not in text and "&" not in text:
        return ""  # most lines of most corpora
    for kind, found in (
        ("not decoded (U+FFFD)", "\ufffd" if "\ufffd" in text else ""),
        ("old Mac line ending, which does not end a line here", "\r" if "\r" in text else ""),
        ("control character", next((c for c in text if _is_control(c)), "")),
        ("invisible character", _match(STRAY, text)),
        ("UTF-8 decoded as another encoding", _mojibake(text)),
        ("mark-up", _match(MARKUP, text)),
        ("scripts mixed in a word", next(filter(_mixes, WORD.findall(text)), "")),
    ):
        if found:
            return f"{kind}: {found!r}" if found.isprintable() else f"{kind}: {found!a}"
    return ""


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Co") and character != "\t"


def _match(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[0] if found else ""


def _mojibake(text: str) -> str:
    """Letters that become others when they are written as Windows-1252 and read as UTF-8."""
    for found in MOJIBAKE.finditer(text):
        try:
            found[0].encode("cp1252").decode("utf-8")
        except UnicodeError:
            if not THREE_BYTES.match(text, found.start()):
                continue
        return found[0]
    return ""


def _mixes(word: str) -> bool:
    """Whether letters that look alike come from different scripts, as a Cyrillic а in `bаnk`."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(c, "").split(" ")[0] for c in word if c.isalpha()}
    return len(scripts.intersection(ALIKE)) > 1
