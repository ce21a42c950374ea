"""A folder is replaced as a whole, whoever else replaces it and whatever goes wrong."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from translate.inference import atomic_folder

NAMES = ("a", "b", "c")


def replace_often(folder: Path, content: bytes, start: Any) -> None:
    start.wait()
    for _ in range(40):
        atomic_folder.replace(folder, dict.fromkeys(NAMES, content))


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


def test_what_could_not_be_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    atomic_folder.replace(folder, {"a": b"old"})

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_folder.replace(folder, {"a": b"new", "b": b"new"})
    assert [*tmp_path.iterdir()] == [folder]
    assert (folder / "a").read_bytes() == b"old"
