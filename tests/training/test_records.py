"""The records of a run: provenance.json and train.log."""

from __future__ import annotations

import logging
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from translate.errors import UserError
from translate.training import records
from translate.training.records import _LogFile


def test_provenance_tells_how_far_a_run_is(tmp_path: Path) -> None:
    assert records.run_status(tmp_path) == "new"
    records.write(tmp_path, status="unfinished")
    assert records.run_status(tmp_path) == "unfinished"
    records.write(tmp_path, status="finished", steps=7)
    assert records.run_status(tmp_path) == "finished"
    record = records.read(tmp_path)
    assert record["steps"] == 7
    assert "torch" in record["versions"]


def test_a_record_names_what_computes_and_not_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert records.device_name(gpu=True) == "a GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    records.write(tmp_path)
    assert records.read(tmp_path)["device"] == records.device_name(gpu=False) != "a GPU"


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text("{")
    with pytest.raises(UserError, match=r"provenance\.json.*is .* the folder of a run\?"):
        records.run_status(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=r"provenance\.json.*restore it, or start a new run"):
        records.run_status(tmp_path)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def test_the_commit_is_of_this_code_and_not_of_what_is_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / ".venv" / "records.py"
    installed.parent.mkdir()
    installed.touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "its own")
    monkeypatch.setattr(records, "__file__", str(installed))
    assert records._commit() is None


def test_a_commit_has_a_plus_where_code_was_changed_or_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "translate" / "training" / "records.py"
    module.parent.mkdir(parents=True)
    module.touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all of it")
    monkeypatch.setattr(records, "__file__", str(module))
    (tmp_path / "notes.txt").touch()
    clean = records._commit()
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean)
    own = tmp_path / "translate" / "mine.py"
    own.touch()
    assert records._commit() == f"{clean}+"
    own.unlink()
    module.write_text("changed = True\n", encoding="utf-8")
    assert records._commit() == f"{clean}+"


def test_a_log_on_a_full_disk_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    handler = _LogFile(Path("/dev/full"))
    handler.handle(logging.makeLogRecord({"msg": "step 1"}))
    with suppress(OSError):
        handler.close()
    assert capsys.readouterr().err == ""
