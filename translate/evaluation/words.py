"""Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Tibetan, Burmese, Khmer.

There a letter counts as a word, for nothing else can be counted without a dictionary.
"""

from __future__ import annotations

import re

# Han, kana and bopomofo; Thai to Burmese; Khmer
RANGES = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u0e00-\u109f\u1780-\u17ff"
)
LETTER = re.compile(rf"(?=\w)[{RANGES}]")
WITH_MARKS = re.compile(rf"{LETTER.pattern}[^\w\s]*")  # and the punctuation that follows
WORD = re.compile(rf"{LETTER.pattern}|[^\W{RANGES}]+")


def unspaced(character: str) -> bool:
    """Whether a character, if any, is a letter of a script without spaces."""
    return character.isalpha() and LETTER.match(character) is not None


def words(text: str) -> list[str]:
    """Words between white space, each letter of a script without spaces by itself."""
    return WITH_MARKS.sub(r" \g<0> ", text).split()


def bare_words(text: str) -> list[str]:
    """The same without punctuation and signs."""
    return WORD.findall(text)
