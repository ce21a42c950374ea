"""What experiments share: each command once, and no run under other settings than it had."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from translate.errors import UserError


@pytest.fixture
def calls(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(script, "translate", lambda *arguments: made.append(arguments))
    return made


def finished(run: Path, *settings: str, status: str = "finished") -> Path:
    run.mkdir()
    record = {"status": status, "command": ["translate", "train", f"run={run}", *settings]}
    (run / "provenance.json").write_text(json.dumps(record))
    return run


def test_a_finished_run_is_not_trained_again(
    script: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    settings = ["model=rnn_none", "experiment=toy", "model=rnn_luong"]  # the last value counts
    script.train(finished(tmp_path / "run", *settings), settings)
    assert calls == []


@pytest.mark.parametrize("status", [None, "unfinished"])
def test_a_new_or_stopped_run_is_trained(
    script: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path, status: str | None
) -> None:
    run = tmp_path / "run"
    if status:
        finished(run, "model=rnn_none", status=status)
    script.train(run, ["model=rnn_none"])
    assert calls == [("train", f"run={run}", "model=rnn_none")]


def test_a_run_of_other_settings_is_refused(
    script: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", "model=rnn_none", "seed=1")
    with pytest.raises(UserError, match=r"trained with model=rnn_none seed=1, not .* seed=2"):
        script.train(run, ["model=rnn_none", "seed=2"])
    assert calls == []


def test_a_run_that_went_on_with_other_threads_is_still_itself(
    script: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    """Its provenance has the command that began it."""
    run = finished(tmp_path / "run", "model=rnn_none", "trainer.threads=1", "trainer.max_steps=9")
    script.train(run, ["model=rnn_none", "trainer.threads=2", "trainer.max_steps=9"])
    with pytest.raises(UserError, match=r"max_steps=9, not .* trainer\.max_steps=8"):
        script.train(run, ["model=rnn_none", "trainer.max_steps=8"])
    assert calls == []


def test_translations_are_made_once_for_the_same_weights(
    script: ModuleType, calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    run = finished(tmp_path / "run")
    for folder in ("bundle", "evaluation"):
        (run / folder).mkdir()
    for name in ("config.json", "model.safetensors"):
        (run / "bundle" / name).touch()
    lines = "他在北京\n\nc\u2028d\n".encode()
    (run / "evaluation" / "test.hyp").write_bytes(lines)
    report = run / "evaluation" / "test.json"
    files = {"hypotheses": lines, "model": b""}
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    figures = {"sha256": sha256, "tokenize": "zh", "decoding": {}, "likelihood": None}
    report.write_text(json.dumps(figures), "utf-8")
    stored = script.evaluated(run, "test", "data.split=test")
    assert stored.hypotheses == ["他在北京", "", "c\u2028d"]
    assert calls == []
    (run / "bundle" / "model.safetensors").write_bytes(b"others")
    script.evaluated(run, "test", "data.split=test")
    assert calls == [("evaluate", f"run={run}", "data.split=test")]
