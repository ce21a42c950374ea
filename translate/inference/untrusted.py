"""Plain files that may come from a stranger: bounded, and parsed with limits."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from translate.errors import UserError

DEEPEST = 16  # levels of JSON


def read(path: Path, *, largest: int) -> bytes:
    """The bytes of a file of a bundle.

    Raises:
        UserError: it cannot be read, is a link or a device, or has more than `largest` bytes.
    """
    try:
        # neither a link that leads elsewhere nor a pipe that never ends
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path} is not a regular file: copy the whole bundle again")
            if status.st_size > largest:
                raise UserError(
                    f"{path} has {status.st_size:,} bytes, but in a bundle it may have at most "
                    f"{largest:,}: this is not a bundle of this program"
                )
            return file.read()
    except OSError as error:
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, but a bundle must contain regular files: copy it "
                "with cp -rL"
            ) from error
        remedy = "copy the whole bundle again"
        if isinstance(error, PermissionError):
            remedy = "allow this user to read it"
        raise UserError(f"{path} cannot be read ({error.strerror}): {remedy}") from error


def parse(content: bytes, path: Path) -> dict[str, Any]:
    """A JSON object of a bounded depth; `path` is for the message.

    Raises:
        UserError: it is none.
    """
    try:
        values = json.loads(content, parse_constant=_no_number)
        depth = _depth(values)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): copy the whole bundle again") from error
    if not isinstance(values, dict) or depth > DEEPEST:
        what = f"not a JSON object of at most {DEEPEST} levels"
        raise UserError(f"{path} is damaged ({what}): copy the whole bundle again")
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, within), default=0)
