"""The wording of errors: the fault, the remedy, and a stranger's text made visible."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
import unicodedata
from collections.abc import Collection, Iterable

LONGEST_NAME = 120  # bytes; file systems end at 255
UNSEEN = ("Cc", "Cs", "Zl", "Zp")  # categories that move a terminal, or cannot be written


def nearest(name: str, choices: Iterable[str], *, prefix: str = "") -> str:
    """Return the end of a message about an unknown name: `; did you mean d_model?`, or all choices.

    `prefix` stands before a suggestion: where in the configuration it is (`model.`).
    """
    known = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), known, n=1)
    if close:
        return f"; did you mean {prefix}{known[close[0]]}?"
    return f"; choose from {', '.join(known.values())}" if known else "; nothing can be given here"


def listing(problems: Iterable[str]) -> str:
    """One problem as it is; several under a headline, a line each, none twice."""
    lines = list(dict.fromkeys(problems))
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"{len(lines)} problems", *lines])


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 line`, `2,000 lines`; `nouns` is a plural that needs more than an s."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def install(extra: str) -> str:
    """Return the command that installs an extra's packages; no index has this package yet."""
    from importlib import metadata  # a good part of the program's start

    pip = f"{shlex.quote(sys.executable)} -m pip install"
    try:
        requirements = metadata.requires("attention-translate") or []
    except metadata.PackageNotFoundError:  # read from a clone, and never installed
        return f"{pip} -e '.[{extra}]' in the clone"
    of_extra = re.compile(rf"(.+?) ?; ?extra == ['\"]{extra}['\"]")
    needed = [match[1] for match in map(of_extra.fullmatch, requirements) if match]
    return f"{pip} {shlex.join(needed)}"


def escaped(text: str, categories: Collection[str] = UNSEEN, *, kept: str = "") -> str:
    """`text` with characters of these Unicode categories spelled as Python does, but for `kept`."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in categories and character not in kept
        else character
        for character in text
    )


def shortened(name: str) -> str:
    """Return as much of a name as leaves room for a digest and an ending."""
    content = name.encode("utf-8", "surrogateescape")
    return (
        name if len(content) <= LONGEST_NAME else content[:LONGEST_NAME].decode("utf-8", "ignore")
    )
