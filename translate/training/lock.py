"""One training at a time in a run folder."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from translate.durable import naming
from translate.errors import UserError

FILE = ".lock"
log = logging.getLogger(__name__)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder, which is made where it is missing.

    The system drops the lock with the process, however that ends: what is left then is a stale
    file that names a process of this host, and the next training takes it over. Another host's
    lock cannot be asked about on every file system, so that only its absence counts. The lock is
    the process's own (POSIX), which workers that outlive a killed run do not inherit.

    Raises:
        UserError: another process trains here, or nothing can be written here.
    """
    path = run / FILE
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise UserError(
            f"{run} cannot be written to ({error.strerror}): fix its permissions or choose "
            "another folder with run="
        ) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise UserError(
                    f"{run} cannot be locked ({error.strerror}): choose a folder on another file "
                    "system with run="
                ) from error
            raise UserError(
                f"{run} is being trained by {_holder(file)}: wait for it, stop it, or choose "
                "another folder with run="
            ) from None
        _take_over(file, path)
        try:
            yield
        finally:
            file.truncate(0)  # not removed: who has it open already would lock a file of no name


def _take_over(file: BinaryIO, path: Path) -> None:
    here = socket.gethostname()
    if before := _read(file):
        if before.get("host") != here:
            raise UserError(
                f"{path.parent} is being trained by {_holder(file)}, or was when that machine "
                f"stopped: if nothing is running there any more, remove {path}"
            )
        log.warning("taking %s over from %s, which has died", path.parent, _holder(file))
    with naming(path):
        file.truncate(0)
        file.write(json.dumps({"host": here, "pid": os.getpid()}).encode())
        file.flush()


def _read(file: BinaryIO) -> dict[str, object]:
    file.seek(0)
    try:
        content = json.loads(file.read())
    except ValueError:  # empty, or its writer died at it
        return {}
    return content if isinstance(content, dict) else {}


def _holder(file: BinaryIO) -> str:
    content = _read(file)
    return f"process {content.get('pid', '?')} on {content.get('host', 'this machine')}"
