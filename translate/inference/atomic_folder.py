"""A folder replaced as a whole: whatever interrupts it, the old or the new one is found."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from translate.durable import sync
from translate.errors import UserError

log = logging.getLogger(__name__)

Read = TypeVar("Read")


def present(folder: Path, marker: str) -> Path | None:
    """Where the folder of this name, known by a file in it, is; None if nowhere.

    It may still be set aside, when `replace` died between its two renames.

    Raises:
        OSError: it is where one may not look, or its name is too long.
    """
    places = (place for place in (folder, _aside(folder)) if _is_file(place / marker))
    return next(places, None)


def _is_file(path: Path) -> bool:
    """Not pathlib's, which from Python 3.14 on tells of nothing that cannot be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENAMETOOLONG):
            raise
        return False


def steadily(folder: Path, read: Callable[[], Read]) -> Read:
    """What `read` makes of the folder: once more, where its files were of two and did not fit."""
    began = _identity(folder)
    try:
        return read()
    except (UserError, OSError):
        if _identity(folder) == began:
            raise
    return read()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold these files and nothing else.

    They are written beside it and reach the disk before the old folder makes way; two folders
    cannot be exchanged in one portable call, so for a moment the old one is set aside. Of several
    processes that replace folders in one place, each waits for the other.

    Raises:
        OSError: the old folder is untouched, here or aside.
    """
    folder = _target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, aside = _fresh(folder), _aside(folder)
    with _alone(folder.parent):
        remove_half_written(folder)
        try:
            _write(fresh, files)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)  # it may have filled the disk
            raise
        if folder.exists():
            folder.replace(aside)
        fresh.replace(folder)
        sync(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)


def remove_half_written(folder: Path) -> None:
    """Delete what a killed `replace` was writing; a whole folder set aside comes back."""
    aside = _aside(folder)
    if aside.exists() and not folder.exists():
        aside.replace(_target(folder))
    for leftover in (_fresh(folder), aside):
        if leftover.exists():
            shutil.rmtree(leftover)


@contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Wait for any other process that replaces a folder in this one."""
    handle = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems of networks do not lock folders
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting for another process that writes in %s", parent)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # a process that was forked meanwhile has the handle too
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """A new folder with these files, on the disk."""
    folder.mkdir()
    for name, content in files.items():
        with (folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync(folder)


def _target(folder: Path) -> Path:
    """The folder itself, where a link stands for it."""
    return Path(os.path.realpath(folder))  # resolve() raises at a link to itself


def _fresh(folder: Path) -> Path:
    target = _target(folder)
    return target.with_name(f".{target.name}.new")


def _aside(folder: Path) -> Path:
    target = _target(folder)
    return target.with_name(f".{target.name}.old")
