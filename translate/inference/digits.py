"""The numbers of a text, in whatever script and however its language parts their digits."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d[\d.,:'’\u00a0\u202f]*\d")  # of two digits or more
THOUSANDS = re.compile(r"\D(?=\d{3}(?!\d))")  # a sign in a number that may part thousands
SPACED_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:[ \u2009]\d{3})+(?!\d)")


def readings(text: str) -> tuple[list[str], list[str]]:
    """Return the numbers of a text where a space parts two of them, or parts thousands."""
    closed = SPACED_THOUSANDS.sub(lambda number: re.sub(r"\s", "", number[0]), text)
    return numbers_in(text), numbers_in(closed)


def numbers_in(text: str) -> list[str]:
    """Write the numbers of a text in one way.

    A sign before just three digits may part thousands, and is left out; any other is a point.
    """
    return [
        "".join(str(int(each)) if each.isdecimal() else "." for each in THOUSANDS.sub("", number))
        for number in NUMBER.findall(text)
    ]
