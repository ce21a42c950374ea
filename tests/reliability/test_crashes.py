"""Whatever interrupts a save, at whichever call to the system: the old state is found, or the new.

Not one of these calls is named by the tests: the faults strike at the first, the second, the third
… call until a save gets through.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import ended, forked

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.files import TEMPORARY, remove_temporaries, replacing
from translate.inference import bundle
from translate.training.checkpoints import AtomicCheckpointIO

ENOUGH = 500  # calls; no save makes so many


@dataclass(frozen=True)
class Subject:
    """Something that is saved, and how it is told apart afterwards."""

    save: Callable[[float], None]
    found: Callable[[], float]
    left: Callable[[], list[str]]
    names: list[str]  # what lies there after a save that nothing disturbed


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def checkpoint(folder: Path) -> Subject:
    io = AtomicCheckpointIO()
    path = folder / "checkpoints" / "last.ckpt"

    def save(value: float) -> None:
        io.save_checkpoint({"weights": torch.full((300,), value), "step": 1}, path)

    def found() -> float:
        (value,) = set(io.load_checkpoint(path)["weights"].tolist())
        return value

    return Subject(save, found, lambda: names(path.parent), ["last.ckpt"])


def model(folder: Path, tokenizers: Tokenizers, faults: Any) -> Subject:
    models = {value: faults.tiny_model(tokenizers, bias=value) for value in (1.0, 2.0)}

    def save(value: float) -> None:
        faults.save_bundle(folder / "bundle", models[value], tokenizers)

    def found() -> float:
        loaded = bundle.load(bundle.find(folder))
        (value,) = set(loaded.model.output.bias.tolist())
        return value

    return Subject(save, found, lambda: names(folder), ["bundle"])


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That syncs are called, and in which order, is tested; a test pulls no plug."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(params=["checkpoint", "bundle"])
def subject(
    request: pytest.FixtureRequest, tmp_path: Path, tokenizers: Tokenizers, faults: Any
) -> Subject:
    if request.param == "checkpoint":
        return checkpoint(tmp_path)
    return model(tmp_path, tokenizers, faults)


@pytest.mark.parametrize(
    ("number", "lasting"),
    [(errno.ENOSPC, True), (errno.ENOSPC, False), (errno.EIO, False), (errno.EACCES, False)],
    ids=lambda value: (
        errno.errorcode[value] if value > 1 else ("from then on" if value else "once")
    ),
)
def test_a_save_that_fails_at_any_call_leaves_the_old_state_or_the_new(
    subject: Subject, faults: Any, number: int, lasting: bool
) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    subject.save(1.0)
    outcomes = set()
    for first in range(1, ENOUGH):
        subject.save(1.0)
        message = ""
        with faults.watching(fail, first, ENOUGH if lasting else first) as calls:
            try:
                subject.save(2.0)
            except UserError as error:
                message = str(error)
        if message:
            assert os.strerror(number) in message
            assert "\n" not in message
        outcomes.add(subject.found())
        if first > len(calls.names):
            break
        if message and not lasting:
            assert not any(name.endswith(TEMPORARY) for name in subject.left())
    assert not message
    assert outcomes == {1.0, 2.0}
    assert subject.left() == subject.names
    assert {"open", "write", "fsync", "os.rename"} <= set(calls.names)


def test_a_process_killed_at_any_call_leaves_the_old_state_or_the_new(
    subject: Subject, faults: Any, tmp_path: Path
) -> None:
    outcomes = set()
    subject.save(1.0)
    for first in range(1, ENOUGH):

        def save(first: int = first) -> None:
            with faults.watching(faults.die, first, first):
                subject.save(2.0)

        status = ended(forked(save))
        outcomes.add(subject.found())
        if status == 0:
            break
        assert status == -signal.SIGKILL
        subject.save(1.0)  # the next save, after what the next start does, mends all
        remove_temporaries(tmp_path / "checkpoints")
    assert outcomes == {1.0, 2.0}
    assert subject.left() == subject.names


def test_a_disk_that_fills_up_in_the_middle_of_a_file(subject: Subject, faults: Any) -> None:
    subject.save(1.0)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
        with pytest.raises(UserError, match=os.strerror(errno.EFBIG)):
            subject.save(2.0)

    assert ended(forked(save)) == 0
    assert subject.found() == 1.0


def test_the_disk_is_told_in_the_order_that_a_power_cut_needs(
    subject: Subject, faults: Any
) -> None:
    """Contents before the name that points at them, the name before the save is called done."""
    subject.save(1.0)
    with faults.watching(lambda: None, 1, 0) as calls:
        subject.save(2.0)
    changes = [name for name in calls.names if name in ("write", "fsync", "os.rename")]
    renamed = changes.index("os.rename")
    assert changes[renamed - 1] == "fsync"
    assert changes[-1] == "fsync"
    assert "write" not in changes[renamed:]


def test_two_processes_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "test.json"
    write = f"with replacing(Path({str(path)!r})) as file: file.write(b'theirs')"
    other = f"from pathlib import Path; from translate.files import replacing\n{write}"
    with replacing(path) as file:
        file.write(b"mine")
        subprocess.run([sys.executable, "-c", other], check=True)
        assert path.read_bytes() == b"theirs"
    assert path.read_bytes() == b"mine"
    assert names(tmp_path) == ["test.json"]
