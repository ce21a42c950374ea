"""What the programs of this folder share: arguments, errors of a line, and a process's memory."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from translate.errors import UserError


def begin(main: Callable[[], None]) -> None:
    """Run a program from a command line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def peak_memory() -> int:
    """The most that this process has had in memory, in bytes (Linux).

    Not that of getrusage, which is never less than the peak of the process that started this one.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def whole(text: str, least: int = 0) -> int:
    """A whole number of at least so much."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of at least {least}")
    return int(text)


def positive(text: str) -> int:
    return whole(text, least=1)


def numbers(text: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers, such as 1,2,3") from None


def names(what: str, known: Sequence[str]) -> Callable[[str], list[str]]:
    """A reader of names separated by commas."""

    def read(text: str) -> list[str]:
        chosen = [name for name in text.split(",") if name]
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(
                f"no {what} {', '.join(unknown)}: choose from {', '.join(known)}"
            )
        return chosen

    return read


def quoted(text: str) -> str:
    """What a shell can cut into words."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return text


def picture(text: str) -> Path:
    """A .png, .svg or .pdf file: another is told before the work."""
    from translate.extras.figures import file_type

    try:
        file_type(Path(text))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def composed(settings: Sequence[str]) -> dict[str, Any]:
    """The configuration of a training.

    Raises:
        UserError: it cannot be trained.
    """
    from translate.compose import compose
    from translate.config import check
    from translate.training.settings import training_problems

    composition = compose("train", settings)
    check(composition.wrong)
    check(training_problems(composition.values))
    return composition.values
