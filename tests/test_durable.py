"""Files that are written as a whole."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from translate import durable
from translate.durable import (
    check_file,
    check_folder,
    growing,
    naming,
    partial,
    remove_temporaries,
    replacing,
    write,
)
from translate.errors import UserError


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


def test_two_containers_that_write_one_file_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their processes may have the same number."""
    path = tmp_path / "file"
    with replacing(path) as first:
        monkeypatch.setattr(durable, "HERE", "elsewhere")
        with replacing(path) as second:
            second.write(b"second")
        first.write(b"first")
    assert path.read_bytes() == b"first"  # which ended last
    assert list(tmp_path.iterdir()) == [path]


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


def test_a_link_in_the_place_of_what_is_to_become_a_file_is_not_followed(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "text"
    precious.write_bytes(b"theirs")
    partial(path).symlink_to(precious)
    with growing(path) as file:
        file.write(b"ours")
    assert (precious.read_bytes(), path.read_bytes()) == (b"theirs", b"ours")
    assert not path.is_symlink()


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


def test_a_file_that_another_finishes_just_before_it_is_locked_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    lock = fcntl.flock

    def locked_late(file: BinaryIO, operation: int) -> None:
        partial(path).replace(path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", locked_late)
    partial(path).write_bytes(b"lines")
    with pytest.raises(UserError, match="is being written by another process"):
        growing(path).__enter__()
    assert path.read_bytes() == b"lines"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_the_file_behind_a_standard_stream_is_not_replaced(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program, and the shell after it, write there goes on in the same file."""
    path, link = tmp_path / "file", tmp_path / name  # like /dev/stdout
    path.write_text("of before\n")
    with path.open("a") as stream:  # >> file
        monkeypatch.setattr(sys, name, stream)
        link.symlink_to(f"/dev/fd/{stream.fileno()}")
        stream.write("first\n")
        for given in (link, path):
            check_file(given)
            write(given, b"content\n")
        stream.write("last\n")
    assert path.read_text() == "of before\nfirst\ncontent\ncontent\nlast\n"
    assert link.is_symlink()


@pytest.mark.parametrize("stream", [None, object()], ids=["closed", "a program's own"])
def test_a_file_is_written_whatever_stands_for_standard_output(
    tmp_path: Path, stream: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


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

    monkeypatch.setattr("translate.durable.TemporaryFile", read_only)
    with pytest.raises(UserError, match="Read-only file system"):
        check_file(tmp_path / "new")
    check_file(Path(os.devnull))  # a device is written to as it is, wherever it lies


def test_looking_whether_a_place_can_be_written_leaves_nothing_there(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    check_file(tmp_path / "a" / "b" / "file")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b"]


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
