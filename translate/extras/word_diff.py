"""The words in which two texts differ."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import NamedTuple

from translate.data.plain_text import words

MARKED = 500  # words of a text; the time to compare two grows with the square


class DiffWord(NamedTuple):
    """A word or the space before one; `shared` where the other text has it at this place too."""

    text: str
    shared: bool


def word_diff(text: str, other: str) -> list[DiffWord]:
    """The words of a text and the spaces between them; shared where both have the same order.

    After the first `MARKED` words nothing is compared, and all count as shared, as spaces do.
    """
    left, right = words(text), words(other)
    matched = SequenceMatcher(
        None, left[:MARKED], right[:MARKED], autojunk=False
    ).get_matching_blocks()
    shared = {block.a + i for block in matched for i in range(block.size)}
    spaced: list[DiffWord] = []
    end = 0
    for i, word in enumerate(left):
        start = text.index(word, end)
        if i and start > end:
            spaced.append(DiffWord(" ", True))
        end = start + len(word)
        spaced.append(DiffWord(word, i in shared or i >= MARKED))
    return spaced
