"""The way of a failure to a person: a line on stderr and an exit status, no traceback unasked."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from translate.errors import UsageError as UsageError
from translate.errors import UserError
from translate.wording import escaped, listing

FAILURE, USAGE, BROKEN_PIPE = 1, 2, 141  # 128 + the signal, as shells count


def refuse(problems: Iterable[str]) -> None:
    """Raise one UsageError for all problems of a configuration, if it has any."""
    if lines := list(problems):
        raise UsageError(listing(lines))


class JobFailedError(BaseException):
    """A job's exception (its `__cause__`) on its way past Hydra, which would print it itself."""


class StoppedError(BaseException):
    """A signal came while nothing was under way that could be saved.

    Not Python's KeyboardInterrupt: Lightning answers that one by leaving with status 1.
    """

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; to go on or start again, give the same command")
        self.exit_code = 128 + number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise, so that half-written files are removed on the way out."""
    if threading.current_thread() is not threading.main_thread():  # others cannot handle signals
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number)

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def report(error: BaseException, *, debug: bool) -> int:
    """Tell what went wrong; returns the exit status."""
    if isinstance(error, JobFailedError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    if isinstance(code := getattr(error, "exit_code", None), int):  # ended by a signal, all saved
        sys.stderr.write(f"translate: {error}\n")
        return code
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, UserError):
        _say(str(error))
        return USAGE if isinstance(error, UsageError) else FAILURE
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:  # not a file of ours: most likely stdout on a full disk
            _silence_stdout()
        _say(f"{error.filename or 'output'}: {error.strerror}")
        return FAILURE
    text = " ".join(str(error).split()) or "no message"
    hint = "" if debug else "; run again with debug=true for the traceback"
    _say(f"{type(error).__name__}: {text}{hint}")
    return FAILURE


def _say(text: str) -> None:
    sys.stderr.write(escaped(f"translate: error: {text}\n", kept="\n\t"))


def _silence_stdout() -> None:
    """Python flushes stdout once more on the way out: into nothing, rather than fail again."""
    with suppress(OSError, ValueError):  # stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
