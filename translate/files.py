"""Files and folders that a crash cannot tear, and the locks that keep two processes apart.

Whatever interrupts a write, a reader meets the whole old file or folder, or the whole new one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, starmap
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile, mkdtemp
from typing import BinaryIO, TypeVar

from translate.errors import UserError

Read = TypeVar("Read")

TEMPORARY = ".tmp"
HERE = token_hex(4)  # in two containers over one folder processes have the same numbers
LOCK = ".lock"  # the file in a run's folder
log = logging.getLogger(__name__)


# One file


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, and to read back; when the block has ended well, it is `path`.

    A link stays, and what it leads to is replaced. A device or a pipe is written to as it is, and
    cannot be read back.

    Raises:
        OSError: `path` is what it was, unless the folder alone could not be synced at the end.
    """
    # a name of its own: another process may write `path` too
    temporary = _beside(path, f".{os.getpid()}-{HERE}{TEMPORARY}")
    try:
        with _becoming(path, temporary, lambda: temporary.open("w+b")) as file:
            yield file
    except BaseException:
        with suppress(OSError):  # a leftover is removed at the next start
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def growing(path: Path) -> Iterator[BinaryIO]:
    """Open a file like `replacing`, but keep what was written when it fails, as `partial(path)`.

    Raises:
        UserError: another process is writing it.
    """
    part = partial(path)
    with _becoming(path, part, lambda: _opened_alone(part)) as file:
        yield file


def partial(path: Path) -> Path:
    """Return the file that `growing` writes until it has all."""
    return path if _in_place(path) else _beside(path, ".partial")


def write(path: Path, content: bytes) -> None:
    """Write a whole file as `replacing` does, and make its folder.

    Raises:
        UserError: the path cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _becoming(path: Path, temporary: Path, opened: Callable[[], BinaryIO]) -> Iterator[BinaryIO]:
    if _in_place(path):
        with naming(path), path.open("wb") as file:
            yield file
        return
    with naming(path), opened() as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(_behind(path))  # before a lock ends
    sync(temporary.parent)


def _opened_alone(path: Path) -> BinaryIO:
    """Open a file at its beginning, under a lock: another process's lines would be cut off."""
    # a link that somebody else has set here is not followed
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    if not _lock(file.fileno()):
        file.close()
        raise UserError(
            f"{path} is being written by another process: wait until it has ended, or name "
            "another file"
        )
    file.truncate()
    return file


def _beside(path: Path, ending: str) -> Path:
    """Return a name in the folder of the file itself, not of a link: so a rename is atomic."""
    path = _behind(path)
    return path.with_name(path.name + ending)


def _behind(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _in_place(path: Path) -> bool:
    """Tell whether a path is a device or a pipe: a file in its place would go unread."""
    return path.exists() and not path.is_file()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an error of writing: a full disk has no name for it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporaries(folder: Path) -> None:
    """Delete the files that a killed process was writing."""
    for path in folder.glob(f"*{TEMPORARY}"):
        if not path.is_dir():
            path.unlink(missing_ok=True)  # two may be starting


def check_folder(folder: Path) -> None:
    """Make a folder and check that a file can be made in it, before there is something to write.

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
    """Check that `write` can write a file, before there is something to write.

    Raises:
        UserError: it cannot.
    """
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    if not _in_place(path):
        check_folder(_behind(path).parent)


def open_plain(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a file to read that may come from a stranger; `follow` says whether it may be a link.

    Raises:
        OSError: it is no plain file: from a pipe or a device it could be read for ever.
    """
    links = 0 if follow else os.O_NOFOLLOW
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | links), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def read_plain(path: Path, *, largest: int, follow: bool = True) -> bytes:
    """Return the bytes of a file that may come from a stranger.

    Raises:
        OSError: it is no plain file, or has more than `largest` bytes.
    """
    with open_plain(path, follow=follow) as file:
        if (size := os.fstat(file.fileno()).st_size) > largest:
            what = f"it has {size:,} bytes, but may have at most {largest:,}"
            raise OSError(errno.EFBIG, what, str(path))
        return file.read()


def refuse_links(folder: Path, *parts: str) -> None:
    """Refuse to write where a link leads out of a folder, which may come from a stranger.

    Args:
        parts: the files and folders in it that are to be written; none: the whole folder.

    Raises:
        UserError: a link in them leads out of the folder, or something is no file and no folder.
    """
    inside = Path(os.path.realpath(folder))
    for top in map(folder.joinpath, parts or [""]):
        inner = ((root, name) for root, *names in os.walk(top) for name in chain(*names))
        for path in chain([top], starmap(Path, inner)):
            if not Path(os.path.realpath(path)).is_relative_to(inside):
                raise UserError(
                    f"{path} is a link that leads out of {folder}, and nothing is written through "
                    f"it: remove it, and link {folder} itself to where there is room"
                )
            if _in_place(path) and not path.is_dir():
                raise UserError(f"{path} is neither a file nor a folder: remove it")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, which can then be read again."""
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


# A folder of several files


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
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
    with _one_at_a_time(folder.parent):
        remove_half_written(folder)
        try:
            fresh.mkdir()
            for name, content in files.items():
                with (fresh / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            sync(fresh)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)  # it may have filled the disk
            raise
        if folder.exists():
            folder.replace(aside)
        fresh.replace(folder)
        sync(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)


def remove_half_written(folder: Path) -> None:
    """Delete what a killed `replace_folder` was writing; a whole folder set aside comes back."""
    aside = _aside(folder)
    if aside.exists() and not folder.exists():
        aside.replace(_target(folder))
    for leftover in (_fresh(folder), aside):
        if leftover.exists():
            shutil.rmtree(leftover)


def present(folder: Path, marker: str) -> Path | None:
    """Return the place of a folder of this name, known by a file in it; None if there is none.

    It may still be set aside, when `replace_folder` died between its two renames.
    """
    places = (place for place in (folder, _aside(folder)) if (place / marker).is_file())
    return next(places, None)


def steadily(folder: Path, read: Callable[[], Read]) -> Read:
    """Return `read()` of the folder; read once more where it was replaced in between."""
    before = _identity(folder)
    try:
        return read()
    except (UserError, OSError):
        if _identity(folder) == before:
            raise
    return read()


@contextmanager
def new_folder(folder: Path, *, prefix: str) -> Iterator[Path]:
    """Make a temporary folder beside `folder`; when the block has ended well, it is `folder`.

    The files in it are synced first, so that under the final name all is always whole.
    """
    temporary = Path(mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp's folders are private; a cache may be shared
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        temporary.replace(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _target(folder: Path) -> Path:
    """Return the folder itself, where a link stands for it."""
    return Path(os.path.realpath(folder))  # resolve() raises at a link to itself


def _fresh(folder: Path) -> Path:
    target = _target(folder)
    return target.with_name(f".{target.name}.new")


def _aside(folder: Path) -> Path:
    target = _target(folder)
    return target.with_name(f".{target.name}.old")


# Locks


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder, which is made where it is missing: one training at a time.

    The system drops the lock with the process, however that ends: a stale file is left then that
    names a process of this host, and the next training takes it over. Another host's lock cannot be
    asked about on every file system, so that only its absence counts. Workers that were forked from
    a killed run, and outlive it, do not hold the lock.

    Raises:
        UserError: another process trains here, or nothing can be written here.
    """
    from filelock import FileLock, Timeout  # for training alone

    path = run / LOCK
    try:
        run.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UserError(
            f"{run} cannot be written to ({error.strerror}): fix its permissions or choose "
            "another folder with run="
        ) from error
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            f"{run} is being trained by {_holder(path)}: wait for it, stop it, or choose "
            "another folder with run="
        ) from None
    except OSError as error:
        raise UserError(
            f"{run} cannot be locked ({error.strerror}): choose a folder on another file "
            "system with run="
        ) from error
    try:
        _take_over(path)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):  # somebody has removed the run
                os.truncate(path, 0)
    finally:
        lock.release()


@contextmanager
def in_turn(lock: Path, waiting: str = "") -> Iterator[None]:
    """Hold a lock file; where another process holds it, log `waiting` and wait."""
    from filelock import FileLock, Timeout  # not for translating

    held = FileLock(lock)
    try:
        held.acquire(blocking=False)
    except Timeout:
        if waiting:
            log.info(waiting)
        held.acquire()
    try:
        yield
    finally:
        held.release()


def _take_over(path: Path) -> None:
    """Write who holds the lock into its file, where no other host has done so."""
    here = socket.gethostname()
    if before := _content(path):
        if before.get("host") != here:
            raise UserError(
                f"{path.parent} is being trained by {_holder(path)}, or was when that machine "
                f"stopped: if nothing is running there any more, remove {path}"
            )
        log.warning("taking %s over from %s, which has died", path.parent, _holder(path))
    with naming(path):
        path.write_bytes(json.dumps({"host": here, "pid": os.getpid()}).encode())


def _content(path: Path) -> dict[str, object]:
    try:
        content = json.loads(read_plain(path, largest=1 << 12))
    except ValueError:  # empty, or its writer died at it
        return {}
    return content if isinstance(content, dict) else {}


def _holder(path: Path) -> str:
    content = _content(path)
    return f"process {content.get('pid', '?')} on {content.get('host', 'this machine')}"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait for any other process that replaces a folder in this one; no lock file is left."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not _lock(handle):
            log.info("waiting for another process that writes in %s", folder)
            _lock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # a process that was forked meanwhile has the handle too
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(handle: int, kind: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> bool:
    """Lock an open file or folder until it is closed; False where another process has it.

    Some file systems of networks lock nothing; there, no process is kept away.
    """
    try:
        fcntl.flock(handle, kind)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
