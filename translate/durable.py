"""Files that a crash cannot tear: a reader meets the whole old one or the whole new one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import BinaryIO

from translate.errors import UserError

TEMPORARY = ".tmp"
HERE = token_hex(4)  # in two containers over one folder processes have the same numbers


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, and to read back; when the block has ended well, it is `path`.

    Raises:
        OSError: `path` is what it was, unless the folder alone could not be synced at the end.
    """
    # same folder: the rename stays atomic; a name of its own: another process may write `path` too
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{HERE}{TEMPORARY}")
    try:
        with naming(path), temporary.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # what cannot be removed now is removed at the next start
            temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file it was where a write fails: a full disk has no name for it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write(path: Path, content: bytes) -> None:
    """Write a file as a whole, and make its folder; a device or a pipe is written to as it is.

    Raises:
        UserError: the path cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            with replacing(path) as file:
                file.write(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def check_folder(folder: Path) -> None:
    """Make a folder and see that a file can be made in it, before there is something to write.

    Raises:
        UserError: none can.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()  # access rights alone say nothing to root
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror or error}; choose a folder that may be "
            "written to"
        ) from error


def check_file(path: Path) -> None:
    """See that `write` can write a file, before there is something to write.

    Raises:
        UserError: it cannot.
    """
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    if path.is_file() or not path.exists():
        check_folder(path.parent)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path") from None


def sync(path: Path) -> None:
    """Make what is in a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporaries(folder: Path) -> None:
    """Delete what a killed process was writing."""
    for path in folder.glob(f"*{TEMPORARY}"):
        path.unlink()
