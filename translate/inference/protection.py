"""What must come through a translation as it stands: addresses, tags, placeholders, numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from html import unescape
from typing import Literal

from translate.data.text import UNSPACED

Kind = Literal["url", "email", "tag", "placeholder", "number"]

# a letter, digit or underscore of a word with spaces around it; Korean particles have none
WORD = rf"[^\W{UNSPACED[1:-1]}\u1100-\u11ff\uac00-\ud7af]"
# every run is bounded, or begins where a word does, so that no text takes quadratic time
VERBATIM: dict[Kind, str] = {
    # parentheses belong to it in pairs alone, as in wiki/Bank_(geography)
    "url": rf"(?<!{WORD})(?i:https?://|ftp://|www\.)"
    r"(?:[^\s<>\"()、。，；：！？（）「」]|\([^\s<>\"()]*\))*(?:[^\W_][/&#=_-]*|\([^\s<>\"()]*\))",
    "email": rf"(?<!{WORD})(?<![.+-])(?:{WORD}|[.+-]){{1,64}}@"
    rf"(?:(?:{WORD}|-){{1,64}}(?:\.(?:{WORD}|-){{1,64}})+|[\w-]{{1,64}}(?:\.[\w-]{{1,64}})+)",
    "tag": r"</?[A-Za-z][^<>]{0,500}>"
    r"|&(?:#\d{1,8}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});",
    # of Python, JavaScript, Jinja and shells; then of printf, for whose flag a space may not stand
    "placeholder": r"\$?\{\{? ?[\w.\[\]]{0,64}(?:![rsa])?(?:[:|,-][^{}\s]{0,32})? ?\}\}?"
    r"|%(?:\(\w{1,64}\)|\d{1,2}\$)?[-+#0]?\d{0,4}(?:\.\d{1,3})?(?:hh?|ll?)?[diouxXeEfFgGcs@]"
    rf"(?!{WORD})",
}
NUMBER = re.compile(r"\d[\d.,:'’\u00a0\u202f]*\d")  # of two digits or more
THOUSANDS = re.compile(r"\D(?=\d{3}(?!\d))")  # a sign in a number that may part thousands
SPACED_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:[ \u2009]\d{3})+(?!\d)")
# most texts have neither an item nor a number, and a single class of characters is found fast
TRACE, DIGIT = re.compile(r"[@<&{%]|://|(?i:www\.)"), re.compile(r"\d")


class Protection:
    """Compares a text with its translation.

    URLs, e-mail addresses, markup tags with character references, and placeholders ({name}, ${x},
    {{ x }}, %s, %1$d) must be there verbatim, tags in their order. A reference to a letter
    (&eacute;) is that letter, and no item. Numbers are compared but for how languages part their
    digits; those of one digit are left out, for they may become words.
    """

    def __init__(self, kinds: Collection[Kind]) -> None:
        verbatim = [pattern for kind, pattern in VERBATIM.items() if kind in kinds]
        self._verbatim = re.compile("|".join(verbatim)) if verbatim else None
        self._numbers = "number" in kinds

    def items(self, text: str) -> list[str]:
        """What must stay verbatim, in order."""
        return [item[0] for item in self._found(text)]

    def parts(self, text: str) -> list[str]:
        """The text in parts, every second of which is one of the `items`.

        One inside a word (Don&#39;t) does not part it.
        """
        return _cut(text, (item for item in self._found(text) if not _in_word(item)))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the items stand."""
        return [item.span() for item in self._found(text)]

    def _found(self, text: str) -> Iterator[re.Match[str]]:
        if self._verbatim and TRACE.search(text):
            found = self._verbatim.finditer(text)
            yield from (item for item in found if not unescape(item[0]).isalpha())

    def damage(self, source: str, translation: str, asked: str = "") -> list[str]:
        """What is lost, added or out of order, in words; what is `asked` for may be added."""
        wanted, found = self.items(source), self.items(translation)
        found = _without(found, self.items(asked), wanted)
        if wanted == found:
            return []
        changed = _changes(wanted, found)
        moved = [item for item in wanted if item[0] == "<"] != [i for i in found if i[0] == "<"]
        return changed or ["tags in another order"] * moved

    def numbers(self, source: str, translation: str, asked: str = "") -> list[str]:
        """Which numbers are lost or added, in words; those that are `asked` for may be added."""
        if not self._numbers or not (DIGIT.search(source) or DIGIT.search(translation)):
            return []
        # those of an item are part of it
        source, translation = (
            " | ".join(_cut(text, self._found(text))[::2]) for text in (source, translation)
        )
        # a space may part thousands or numbers: both are right
        read = [
            _changes(wanted, _without(found, _digits(asked), wanted))
            for wanted in (_digits(source), _digits(_closed(source)))
            for found in (_digits(translation), _digits(_closed(translation)))
        ]
        return read[0] if all(read) else []


def _cut(text: str, items: Iterable[re.Match[str]]) -> list[str]:
    """The text in parts, every second of which is one of the items."""
    parts, end = list[str](), 0
    for item in items:
        parts += text[end : item.start()], item[0]
        end = item.end()
    return [*parts, text[end:]]


def _in_word(item: re.Match[str]) -> bool:
    """Whether it is a character reference, of no space or bracket of a tag, between two letters."""
    around = item.string[item.start() - 1 : item.start()], item.string[item.end() : item.end() + 1]
    character = unescape(item[0])
    parts_words = character.isspace() or character in ("<", ">")
    return item[0][0] == "&" and all(map(str.isalpha, around)) and not parts_words


def _changes(wanted: list[str], found: list[str]) -> list[str]:
    lost, added = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    return [f"lost {item}" for item in lost] + [f"added {item}" for item in added]


def _without(found: list[str], allowed: list[str], wanted: list[str]) -> list[str]:
    """What was found, less those beyond the wanted ones that are allowed."""
    spare = (Counter(found) - Counter(wanted)) & Counter(allowed)
    rest = []
    for item in found:
        if spare[item]:
            spare[item] -= 1
        else:
            rest.append(item)
    return rest


def _closed(text: str) -> str:
    """Without the spaces that may part thousands."""
    return SPACED_THOUSANDS.sub(lambda number: re.sub(r"\s", "", number[0]), text)


def _digits(text: str) -> list[str]:
    """The numbers of a text in one way of writing, whatever their script and language.

    A sign before just three digits may part thousands, and is left out; any other is a point.
    """
    return [
        "".join(str(int(each)) if each.isdecimal() else "." for each in THOUSANDS.sub("", number))
        for number in NUMBER.findall(text)
    ]
