r"""`dropped=FILE`: the training pairs that cleaning leaves out, a line each.

Tab-separated under a line of names, or JSON lines, by the file's name. No text has a tab or a line
end of any kind: it is tidy, and so a cell needs no quotes.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from translate.cli.streams import lines_out, output_problems
from translate.data.cleaning import Dropped, Tell
from translate.data.plain_text import GZIP_MAGIC, json_line
from translate.errors import UserError
from translate.files import is_stream, partial

HEADER = "\t".join(Dropped._fields)
# how a list of either format begins, which may be from before there was the last column
OURS = re.compile(
    rb'%b(\trepeats)?\n|\{"rule": "\w+", "corpus": "[^"]+", "line": \d+, "source": "'
    % HEADER.removesuffix("\trepeats").encode()
)
HEAD = 4_096  # bytes of a file in which that is to be seen


def dropped_problems(verbatim: Mapping[str, str]) -> list[str]:
    """Return the reasons against writing to `dropped=`, one line each, before any text is read."""
    if "dropped" not in verbatim:
        return []
    name = verbatim["dropped"]
    path = Path(name)
    if name == "-" or is_stream(path, sys.stdout):
        return [f"dropped={name} is standard output, where the report goes: name a file"]
    if _kind(path) not in ("", ".tsv", ".jsonl"):
        return [f"dropped={name} ends with {_kind(path)}: name it .tsv or .jsonl (or with .gz)"]
    return output_problems(verbatim, "dropped") or [
        f"dropped={name} would overwrite {written}, which translate prepare did not write: name "
        "another file"
        for written in dict.fromkeys((path, partial(path)))
        if not _is_a_list(written)
    ]


@contextmanager
def listed(verbatim: Mapping[str, str]) -> Iterator[Tell | None]:
    """Yield what writes a pair to `dropped=`, as `lines_out` writes lines; None without the key."""
    if "dropped" not in verbatim:
        yield None
        return
    path = verbatim["dropped"]
    as_json = _kind(Path(path)) == ".jsonl"
    with lines_out({"output": path}) as write:

        @cache
        def begin() -> None:  # with the first pair: what fails before leaves no file
            if not as_json:
                write(HEADER)

        def tell(pair: Dropped) -> None:
            try:
                begin()
                cells = ("" if cell is None else str(cell) for cell in pair)
                write(json_line(pair._asdict()) if as_json else "\t".join(cells))
            except OSError as error:  # of this file, not of the cache
                raise UserError(
                    f"dropped={path} cannot be written ({error.strerror or error}): free up space "
                    "there, or name another file"
                ) from error

        yield tell
        begin()


def _kind(path: Path) -> str:
    """The ending that says how to write a list, whether packed or not."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _is_a_list(path: Path) -> bool:
    """Tell whether a file may be written over: a list of ours, an empty file or a pipe."""
    if not path.is_file() or is_stream(path, sys.stderr):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
        if head.startswith(GZIP_MAGIC):
            head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head)
    except (OSError, zlib.error):
        return False
    return not head or OURS.match(head) is not None
