"""Files that a crash cannot tear: a reader meets the whole old one or the whole new one."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import BinaryIO, TextIO

from translate.errors import UserError

TEMPORARY = ".tmp"
HERE = token_hex(4)  # in two containers over one folder processes have the same numbers


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, and to read back; when the block has ended well, it is `path`.

    A link stays, and what it leads to is replaced. A device, a pipe and a file that is standard
    output already are written to as they are, and cannot be read back.

    Raises:
        OSError: `path` is what it was, unless the folder alone could not be synced at the end.
    """
    # a name of its own: another process may write `path` too
    temporary = _beside(path, f".{os.getpid()}-{HERE}{TEMPORARY}")
    try:
        with _becoming(path, temporary, lambda: temporary.open("w+b")) as file:
            yield file
    except BaseException:
        with suppress(OSError):  # what cannot be removed now is removed at the next start
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def growing(path: Path) -> Iterator[BinaryIO]:
    """`replacing`, for what is worth keeping in part: until the end, and if it fails, `partial`.

    Raises:
        UserError: another process is writing it.
    """
    part = partial(path)
    with _becoming(path, part, lambda: _opened_alone(part)) as file:
        yield file


def partial(path: Path) -> Path:
    """Where `growing` writes."""
    return path if _in_place(path) else _beside(path, ".partial")


def being_written(part: Path) -> bool:
    """Whether another process has this `partial` file open in `growing`."""
    try:
        with part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or what locks no files
        return False
    return False


@contextmanager
def _becoming(path: Path, temporary: Path, opened: Callable[[], BinaryIO]) -> Iterator[BinaryIO]:
    if _in_place(path):
        with naming(path), _opened(path) as file:
            yield file
        return
    if temporary.is_symlink():  # another's, who may have set it there for us to follow
        temporary.unlink()
    with naming(path), opened() as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(_behind(path))  # before a lock ends
    sync(temporary.parent)


def _opened_alone(path: Path) -> BinaryIO:
    """A file to write from its beginning; under a lock, for another's lines would be cut off."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    taken = False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        taken = True
    except OSError:  # some file systems of networks lock no files
        pass
    if taken or not _still(path, file):  # another may have finished it and given it its name
        file.close()
        raise UserError(
            f"{path} is being written by another process: wait until it has ended, or name "
            "another file"
        )
    file.truncate()
    return file


def _still(path: Path, file: BinaryIO) -> bool:
    """Whether an open file has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _beside(path: Path, ending: str) -> Path:
    """A name in the folder that holds a file, not a link to it: so a rename is atomic."""
    path = _behind(path)
    return path.with_name(path.name + ending)


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
    """Write a file as a whole, as `replacing` does, and make its folder.

    Raises:
        UserError: the path cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def is_stream(path: Path, stream: TextIO) -> bool:
    """Whether a path leads to what a standard stream reads or writes."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    # no file there yet, or none behind the stream, which may be closed or a program's own
    except (OSError, ValueError, AttributeError):
        return False


def _standard(path: Path) -> TextIO | None:
    """The stream that writes already to what a path leads to: /dev/stdout, or what `>` names."""
    return next((one for one in (sys.stdout, sys.stderr) if is_stream(path, one)), None)


def _in_place(path: Path) -> bool:
    """Whether what a path leads to must stay: another file of its name would go unread."""
    return (path.exists() and not path.is_file()) or _standard(path) is not None


def _opened(path: Path) -> BinaryIO:
    """A device or a pipe; or a standard stream, which goes on where it is."""
    if (stream := _standard(path)) is None:
        return path.open("wb")
    stream.flush()
    return os.fdopen(stream.fileno(), "wb", closefd=False)


def _behind(path: Path) -> Path:
    """What a link leads to."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


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
    if not _in_place(path):
        check_folder(_behind(path).parent)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, which can then be read again."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        raise UserError(
            f"{path} is no file that can be read twice, but a pipe or a device: write it to a file "
            "first"
        )
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions"
        ) from None


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
        if not path.is_dir():
            path.unlink(missing_ok=True)  # two may be starting
