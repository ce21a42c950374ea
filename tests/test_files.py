"""Files and folders that are written as a whole, and the locks on them."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from translate.errors import UserError
from translate.files import (
    check_file,
    check_folder,
    growing,
    locked,
    naming,
    partial,
    remove_temporaries,
    replace_folder,
    replacing,
    write,
)


def test_a_file_that_cannot_be_written_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "page.html"
    write(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=f"cannot write {path}: No space left"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file_that_found_it_full(tmp_path: Path) -> None:
    """Python's error of a write has no name."""
    for block in (naming(tmp_path / "rows"), replacing(tmp_path / "rows")):
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'rows'}'"), block:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError, match="elsewhere"), naming(tmp_path / "rows"):
        (tmp_path / "elsewhere").read_bytes()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to("folder/real")
    for content in (b"first", b"second"):  # there was no file, and there was one
        check_file(link)
        write(link, content)
        assert link.is_symlink()
        assert real.read_bytes() == content
    assert list(real.parent.iterdir()) == [real]


def test_a_file_that_another_process_is_writing_is_refused_and_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    partial(path).write_bytes(b"left by one that was killed")
    with growing(path) as file:
        file.write(b"lines")
        with pytest.raises(UserError, match=r"out\.partial is being written by another process"):
            growing(path).__enter__()
    assert path.read_bytes() == b"lines"
    with growing(path) as file:
        file.write(b"new")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"new"]


def test_a_place_that_cannot_be_written_is_told_before_there_is_something_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(UserError, match=f"cannot write to {folder}: .*choose a folder that"):
            check_folder(folder)
    with pytest.raises(UserError, match=f"cannot write {tmp_path}: it is a folder"):
        check_file(tmp_path)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("translate.files.TemporaryFile", read_only)
    with pytest.raises(UserError, match="Read-only file system"):
        check_file(tmp_path / "new")
    check_file(Path(os.devnull))  # a device is written to as it is, wherever it lies


def test_what_a_killed_process_was_writing_is_removed_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.tmp").mkdir()
    for name in ("file", "file.1-a.tmp"):
        (tmp_path / name).write_bytes(b"")
    unlink = Path.unlink

    def late(path: Path, **options: bool) -> None:
        unlink(path, missing_ok=True)  # by another process that starts
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", late)
    remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.tmp"]


NAMES = ("a", "b", "c")


def replace_often(folder: Path, content: bytes, start: Any) -> None:
    start.wait()
    for _ in range(40):
        replace_folder(folder, dict.fromkeys(NAMES, content))


def test_processes_that_replace_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    fork, folder = multiprocessing.get_context("fork"), tmp_path / "folder"
    start = fork.Barrier(2)
    writers = [fork.Process(target=replace_often, args=(folder, b, start)) for b in (b"1", b"2")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [*tmp_path.iterdir()] == [folder]
    contents = {(folder / name).read_bytes() for name in NAMES}
    assert len(contents) == 1
    assert {path.name for path in folder.iterdir()} == set(NAMES)


def test_a_folder_that_cannot_be_written_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    replace_folder(folder, {"a": b"old"})

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_folder(folder, {"a": b"new", "b": b"new"})
    assert [*tmp_path.iterdir()] == [folder]
    assert (folder / "a").read_bytes() == b"old"


HOLD = """
import os, sys, time
from pathlib import Path
from translate.files import locked
with locked(Path(sys.argv[1])):
    worker = os.fork()  # outlives its parent, as a worker may that loads data
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that trains in the folder, with a worker."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    yield process
    os.kill(worker, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_run_is_locked_until_its_process_dies_whatever_its_workers_do(
    holder: subprocess.Popen[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    who = f"process {holder.pid} on {socket.gethostname()}"
    refused = f"is being trained by {who}: .*another folder with run="
    for _ in range(2):  # to be refused leaves the lock as it is
        with pytest.raises(UserError, match=refused), locked(tmp_path):
            pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        assert f"from {who}, which has died" in caplog.text
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / ".lock").read_bytes() == b""


def test_the_lock_of_another_host_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text('{"host": "elsewhere", "pid": 7}')
    with (
        pytest.raises(UserError, match=r"by process 7 on elsewhere.* remove .*\.lock"),
        locked(tmp_path),
    ):
        pass
    (tmp_path / ".lock").write_text('{"host": "elsew')  # its writer died at it
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(UserError, match=r"cannot be locked \(No locks available\).*with run="),
        locked(tmp_path),
    ):
        pass
