"""English word forms: regular by rule, irregular from the tables."""

from __future__ import annotations

import re
from functools import cache

from translate.data.toy.lexicon import Adjective, Noun, Number, Verb

BE = {"present": ("am", "are", "is", "are"), "past": ("was", "were", "was", "were")}
IRREGULAR_PRESENT = {"have": "has"}
AUXILIARIES = {
    ("do", "present"): ("do", "do", "does", "do"),
    ("do", "past"): ("did", "did", "did", "did"),
    ("have", "present"): ("have", "have", "has", "have"),
    ("have", "past"): ("had", "had", "had", "had"),
    ("want", "present"): ("want", "want", "wants", "want"),
    ("want", "past"): ("wanted", "wanted", "wanted", "wanted"),
    ("be", "present"): BE["present"],
    ("be", "past"): BE["past"],
}
UNITS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen"),
    *("sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def auxiliary(verb: str, tense: str, person: int, number: Number) -> str:
    """A form of `be`, `do`, `have` or `want`; `tense` is `present` or `past`."""
    return AUXILIARIES[verb, tense][3 if number == "pl" else person - 1]


@cache
def finite(verb: Verb, tense: str, person: int, number: Number) -> str:
    """`sees`, `see`, `saw`, `were`."""
    if verb.english == "be":
        return auxiliary("be", tense, person, number)
    if tense == "past":
        return verb.english_forms[0] if verb.english_forms else _regular_past(verb.english)
    if (person, number) != (3, "sg"):
        return verb.english
    return IRREGULAR_PRESENT.get(verb.english, _with_s(verb.english))


@cache
def participle(verb: Verb) -> str:
    """The past participle."""
    return verb.english_forms[1] if verb.english_forms else _regular_past(verb.english)


def _regular_past(verb: str) -> str:
    if verb.endswith("e"):
        return f"{verb}d"
    return f"{verb[:-1]}ied" if re.search("[^aeiou]y$", verb) else f"{verb}ed"


def _with_s(stem: str) -> str:
    """The ending of a plural and of the third person: `-s`, `-es`, `-ies`."""
    if re.search("[^aeiou]y$", stem):
        return f"{stem[:-1]}ies"
    return f"{stem}es" if re.search("(s|x|z|ch|sh|^go|^do)$", stem) else f"{stem}s"


@cache
def noun(entry: Noun, number: Number, *, possessive: bool = False) -> tuple[str, ...]:
    """The words of a noun, the last one inflected: `kitchen tables`, `women's`, `teachers'`."""
    *before, head = entry.english.split(" ")
    if number == "pl":
        head = entry.english_plural or _with_s(head)
    if possessive:
        head += "'" if number == "pl" and head.endswith("s") else "'s"
    return *before, head


def comparative(entry: Adjective) -> tuple[str, ...]:
    """`older`, `more beautiful`."""
    return (entry.english_comparative,) if entry.english_comparative else ("more", entry.english)


def indefinite(following: str) -> str:
    """`a` or `an`, by the sound of the next word."""
    vowel = following[0].lower() in "aeiou" and not following.startswith(("uni", "use"))
    silent_h = following.startswith(("honest", "hour"))
    return "an" if vowel or silent_h else "a"


@cache
def numeral(value: int) -> str:
    """A number word from 2 to 99: `twenty-one`."""
    if value < 10:
        return UNITS[value]
    if value < 20:
        return TEENS[value - 10]
    tens, units = divmod(value, 10)
    return f"{TENS[tens]}-{UNITS[units]}" if units else TENS[tens]
