"""Lines in and lines out: standard input and output, or files, in UTF-8 whatever the locale."""

from __future__ import annotations

import gzip
import itertools
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from translate.data.plain_text import count_lines, one_line, read_lines, unpacked_name
from translate.errors import UsageError, UserError
from translate.files import growing, partial
from translate.names import on_demand
from translate.wording import counted, escaped

if TYPE_CHECKING:
    from rich.console import RenderableType

    from translate.inference.text_constraints import TextConstraint

log = logging.getLogger(__name__)

FOR_EACH = ("prefixes", "constraints")  # files with a line for each line of the input
STREAMS = {"input", *FOR_EACH}

PATIENCE = 5.0  # seconds of waiting for a line
WIDE = 10_000  # characters: no line of a table or a verdict is as long

# ending → what packs a file; gzip is told a name as well
PACKERS = {
    ".xz": "lzma:LZMAFile",
    ".bz2": "bz2:BZ2File",
    ".zst": "translate.extras.zstd:packed",
}

Write = Callable[[str], None]
Advance = Callable[[int], None]

# keys of files with a line for each line, or for each word
READ = {
    "input", "reference", "gold", "prefixes", "constraints", "dictionary", "domains", "shortlist",
    "terms",
}  # fmt: skip


def lines_in(verbatim: Mapping[str, str], sentences: Sequence[str] = ()) -> Iterator[str]:
    """Sentences of the command line, else the lines of `input=`, else those of standard input.

    Raises:
        UsageError: sentences and a file at once.
    """
    path = verbatim.get("input", "-")
    if sentences and "input" in verbatim:
        raise UsageError(f"both sentences and input={path} are given: give only one of the two")
    if sentences:
        return map(_as_text, sentences)
    if path != "-":
        return read_lines(path)
    if sys.stdin.isatty():
        log.info("reading from the terminal, one sentence per line; Ctrl-D ends")
    return read_lines(sys.stdin.buffer)


def constraints_in(
    verbatim: Mapping[str, str], sentences: Sequence[str] = ()
) -> TextConstraint | list[TextConstraint] | Iterator[TextConstraint]:
    """Return the demands of `prefix=`, `prefixes=` and `constraints=` on each translation.

    All of them at once, if the input can be counted beforehand.

    Raises:
        UsageError: a prefix in two ways, or two things to be read from standard input.
        UserError: more or fewer lines than the input has.
    """
    from translate.inference.text_constraints import TextConstraint

    if "prefix" in verbatim and "prefixes" in verbatim:
        raise UsageError("both prefix= and prefixes= are given: give only one of the two")
    prefix, keys = verbatim.get("prefix", ""), [key for key in FOR_EACH if key in verbatim]
    if not keys:
        return TextConstraint(prefix)
    there = {"input": "-"} if not sentences else {}
    piped = [key for key, path in {**there, **verbatim}.items() if key in STREAMS and path == "-"]
    if len(piped) > 1:
        raise UsageError(
            f"{' and '.join(f'{key}=-' for key in piped)}: only one can be standard input"
        )
    rows = _rows([verbatim[key] for key in keys])
    constraints = (
        TextConstraint(
            of.get("prefixes", prefix), tuple(filter(None, of.get("constraints", "").split("\t")))
        )
        for of in (dict(zip(keys, row, strict=True)) for row in rows)
    )
    # a pipe can be read only once
    if not sentences and not Path(verbatim.get("input", "-")).is_file():
        return constraints
    known, lines = list(constraints), len(sentences) or count_lines(verbatim["input"])
    if len(known) != lines:
        raise UserError(
            f"{' and '.join(verbatim[key] for key in keys)} has {counted(len(known), 'line')}, "
            f"but the input has {lines:,}: line n is for line n of the input, and may be empty"
        )
    return known


def _rows(paths: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The n-th lines of several files together.

    Raises:
        UserError: one ends before the others, told when it shows.
    """
    for number, row in enumerate(itertools.zip_longest(*map(_lines, paths)), start=1):
        if None in row:
            short = paths[row.index(None)]
            raise UserError(
                f"{short} has no line {number}, but another file has: line n of prefixes= and "
                "constraints= is for line n of the input, and may be empty"
            )
        yield row


def _lines(path: str) -> Iterator[str]:
    return lines_in({"input": path})


def interactive(verbatim: Mapping[str, str], sentences: Sequence[str]) -> bool:
    """Tell whether a person waits for each line."""
    return not sentences and verbatim.get("input", "-") == "-" and sys.stdin.isatty()


def piped(verbatim: Mapping[str, str], sentences: Sequence[str]) -> bool:
    """Tell whether another program writes the lines, perhaps as slowly as a person."""
    if sentences or verbatim.get("input", "-") != "-":
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:  # something of Python's in its place
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def watched(lines: Iterator[str], window: int) -> Iterator[str]:
    """Yield lines that are translated `window` at a time; where they come slowly, say so once."""
    waited = 0.0  # seconds for lines of this window
    since: float | None = None  # where the present wait began
    over = threading.Event()

    def watch() -> None:
        while not over.wait(PATIENCE / 5):
            began = since
            if waited + (0.0 if began is None else time.monotonic() - began) >= PATIENCE:
                log.info(
                    "waiting for input: lines are translated %d at a time, or at its end; with "
                    "interactive=true each is answered at once", window,
                )  # fmt: skip
                return

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        for number in itertools.count(1):
            since = time.monotonic()
            if (line := next(lines, None)) is None:
                return
            waited, since = waited + time.monotonic() - since, None
            if number == 1:  # before it a program may only be starting
                watcher.start()
            if number == 1 or number % window == 0:
                waited = 0.0
            yield line
    finally:
        over.set()


def output_problems(verbatim: Mapping[str, str], key: str = "output") -> list[str]:
    """Return the reasons not to write to `output=`, or another `key`, before the heavy work."""
    target = verbatim.get(key, "-")
    path = partial(Path(target))  # what it is until it is whole
    if target == "-":
        return []
    if Path(target).is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        return [f"{key}={target} cannot be written: name a file in a folder that you may write to"]
    return [
        f"{key}={target} would overwrite {name}=, which is the same file: name another file"
        for name, source in verbatim.items()
        if name in READ and Path(source).exists()
        and any(each.exists() and each.samefile(source) for each in (Path(target), path))
    ]  # fmt: skip


def _target(verbatim: Mapping[str, str]) -> str:
    """Return the place of the lines; `-` for standard output, also by its other name."""
    path = verbatim.get("output", "-")
    return "-" if path == "/dev/stdout" else path


def show(tables: RenderableType) -> None:
    """Print tables, as wide as the terminal; where there is none, no line is cut."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDE).print(tables)


@contextmanager
def lines_done(verbatim: Mapping[str, str], sentences: Sequence[str]) -> Iterator[Advance]:
    """Yield what counts lines on a progress bar, where a person sees it and nothing else there."""
    read = _target(verbatim) == "-" and sys.stdout.isatty()
    if sentences or interactive(verbatim, sentences) or read or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from translate.data.progress import progress

    path = verbatim.get("input", "-")
    total = count_lines(path) if Path(path).is_file() else None  # a pipe is read only once
    with progress("translating", total, counted=True) as advance:
        yield advance


@contextmanager
def lines_out(verbatim: Mapping[str, str], *, flush: bool = False) -> Iterator[Write]:
    """Yield what writes a line to `output=`, else to standard output.

    A file has its name when all lines are written; what a command that fails has written is beside
    it, and an earlier file of that name is as it was. One that is standard output already
    (/dev/stdout, which the shell may append to) is not opened anew. What is called .gz, .xz, .bz2
    or .zst is packed.
    """
    path = _target(verbatim)
    on_terminal = path == "-" and sys.stdout.isatty()
    flush = flush or on_terminal
    written = 0
    try:
        with ExitStack() as stack:

            @cache
            def stream() -> BinaryIO:  # with the first line: what fails before leaves no file
                return sys.stdout.buffer if path == "-" else _created(Path(path), stack)

            def write(line: str) -> None:
                nonlocal written
                if on_terminal:  # which what stands inside a URL could move, or make believe
                    line = escaped(line, {"Cc"}, kept="\t")
                stream().write(line.encode("utf-8", "replace") + b"\n")
                written += 1
                if flush:
                    stream().flush()

            yield write
            stream().flush()
    except BaseException:
        if written and path != "-" and (kept := partial(Path(path))) != Path(path):
            log.warning("lines written so far, in %s: %s", kept, f"{written:,}")
        raise


def _created(path: Path, stack: ExitStack) -> BinaryIO:
    file = stack.enter_context(growing(path))
    if path.suffix == ".gz":  # it notes the name, and not that of the part
        packed: Any = gzip.GzipFile(unpacked_name(path.name), "wb", fileobj=file)
    elif path.suffix in PACKERS:
        packed = on_demand(PACKERS[path.suffix])(file, "wb")
    else:
        return file
    return cast(BinaryIO, stack.enter_context(packed))


def _as_text(argument: str) -> str:
    """An argument in one line; bytes that are not UTF-8 (surrogates, in Python) become U+FFFD."""
    return one_line(os.fsencode(argument).decode("utf-8", "replace"))
