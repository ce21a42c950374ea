"""Words: text between spaces, and single letters in scripts without spaces.

In Chinese, Thai and their like nothing else can be counted without a dictionary.
"""

from __future__ import annotations

import re
import unicodedata

from translate.data.text import UNSPACED, unspaced

LETTER = re.compile(rf"(?=\w){UNSPACED}")
END, JOIN = "\1", "\2"  # of a letter that stands alone, and before what belongs to it
WITH_MARKS = re.compile(rf"{LETTER.pattern}[^\w\s]*")  # and the punctuation that follows


def stands_alone(character: str) -> bool:
    """Tell whether a character is a letter of a script without spaces; an empty text is not."""
    return character.isalpha() and unspaced(character)


def mostly_unspaced(text: str) -> bool:
    """Tell whether more than half of the letters are of scripts without spaces."""
    letters = [unspaced(character) for character in text if character.isalpha()]
    return 2 * sum(letters) > len(letters)


def words(text: str) -> list[str]:
    """Words between white space, each letter of a script without spaces by itself."""
    return WITH_MARKS.sub(r" \g<0> ", text).split()


def bare_words(text: str) -> list[str]:
    """The same without punctuation and signs: letters, their marks, and digits."""
    bare = text.translate(BARE)
    if not text.isascii():
        bare = bare.replace(END + JOIN, "").replace(END, " ").replace(JOIN, "")
    return bare.split()


class _Bare(dict[int, str]):
    """Character → its replacement in `bare_words`, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        if not unspaced(character):
            shown = character if kind in "LMN" else " "
        elif kind == "M":  # vowels and tones, and the voice of か: no letters by themselves
            shown = f"{JOIN}{character}{END}"
        else:
            shown = f" {character}{END}" if kind in "LN" else " "
        return self.setdefault(code, shown)


BARE = _Bare()
