"""What a run writes: checkpoints, metrics, provenance."""

from __future__ import annotations

import csv
import logging
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from translate.errors import UserError
from translate.training import records
from translate.training.callbacks import Reports
from translate.training.records import _LogFile
from translate.training.step import RunningMeans, TranslationTask
from translate.training.trainer import MetricsFile


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_metrics_of_many_columns_and_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    metrics.log_metrics({"train/loss": 2.5, "epoch": 0}, step=1)
    metrics.log_metrics({"train/loss": 2.0}, step=2)
    metrics.log_metrics({"dev/bleu": 10.0}, step=2)
    metrics.log_metrics({"train/loss": 1.5}, step=3)
    assert [row["step"] for row in read(path)] == ["1", "2", "2", "3"]
    assert read(path)[2] == {"step": "2", "train/loss": "", "dev/bleu": "10"}

    resumed = MetricsFile(path)  # from the checkpoint of step 1
    resumed.log_metrics({"train/loss": 2.1}, step=2)
    assert [(row["step"], row["train/loss"]) for row in read(path)] == [("1", "2.5"), ("2", "2.1")]


def test_a_validation_again_leaves_the_losses_of_its_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    for step in (7, 11):
        metrics.log_metrics({"train/loss": 2.0}, step=step)
        metrics.log_metrics({"dev/bleu": 3.0}, step=step)
    MetricsFile(path).log_metrics({"dev/bleu": 4.0}, step=7)  # of a call with no step left
    assert [(row["step"], row["train/loss"], row["dev/bleu"]) for row in read(path)] == [
        ("7", "2", ""), ("7", "", "4"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [("step,train/loss\n1,2.5\n2,2.4,,9\n", 3), ("garbage\n\x00,,\n", 2), ("step\n-1\n", 2)],
)
def test_what_is_no_row_is_named_before_any_is_written(
    tmp_path: Path, text: str, line: int
) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=rf"metrics\.csv, line {line} is not a row of metrics: fix"):
        MetricsFile(path)
    assert path.read_text("utf-8") == text


def test_a_row_that_comes_again_at_once_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    for loss in (3.0, 2.5):  # killed after it, saved before it
        metrics = MetricsFile(path)
        metrics.log_metrics({"train/loss": loss}, step=299)
        metrics.log_metrics({"dev/bleu": 7.0}, step=299)
    assert [(row["step"], row["train/loss"], row["dev/bleu"]) for row in read(path)] == [
        ("299", "2.5", ""), ("299", "", "7"),
    ]  # fmt: skip


def test_what_a_kill_left_of_a_row_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    metrics.log_metrics({"train/loss": 2.5}, step=8)
    metrics.log_metrics({"train/loss": 2.0}, step=9)
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        MetricsFile(path).log_metrics({"train/loss": 2.0}, step=9)
        assert read(path)[-1] == {"step": "9", "train/loss": "2"}, length
        assert len(read(path)) <= 2


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


def test_a_name_that_is_no_utf8_stands_in_the_record(tmp_path: Path) -> None:
    command = ["translate", "train", "run=n\udce9"]  # as Python reads the byte e9
    records.write(tmp_path, command=command)
    assert records.read(tmp_path)["command"] == command


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


def test_means_of_several_processes_go_on_as_if_they_had_not_stopped() -> None:
    """A checkpoint has what all had together, which none of them may count for itself."""
    both = [RunningMeans(), RunningMeans()]
    for means, (total, count) in zip(both, [(10.0, 2), (30.0, 4)], strict=True):
        means.add("train/loss", torch.tensor(total), torch.tensor(count))
        means.add("train/risk", torch.tensor(1.0), torch.tensor(1))

    def summed() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """What each has reduced, in the order in which it asks."""
        asked: list[list[torch.Tensor]] = [[], []]
        for mine, means in zip(asked, both, strict=True):
            means.summed(Mock(reduce=lambda part, reduce_op, mine=mine: mine.append(part) or part))
        (loss, tokens, risk, sentences), others = asked
        return {
            "train/loss": (loss + others[0], tokens + others[1]),
            "train/risk": (risk + others[2], sentences + others[3]),
        }

    saved = summed()
    assert saved["train/loss"] == (40, 6)
    for main, means in zip((True, False), both, strict=True):
        means.begin_with(saved, main=main)
    assert summed() == saved
    for means in both:
        means.add("train/loss", torch.tensor(7.0), torch.tensor(3))
    assert summed()["train/loss"] == (54, 12)


def test_speed_is_of_real_tokens_without_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    logged: dict[int, dict[str, float]] = {}
    written: list[int] = []
    logger = SimpleNamespace(
        log_metrics=lambda row, step: logged.update({step: row}),
        save=lambda: written.append(len(logged)),
    )
    task: Any = object.__new__(TranslationTask)
    means = RunningMeans()
    object.__setattr__(task, "means", means)
    others = torch.tensor([[4.0, 20.0]])  # of two further processes
    trainer: Any = SimpleNamespace(
        global_step=0, accumulate_grad_batches=1, world_size=3, loggers=[logger],
        strategy=SimpleNamespace(reduce=lambda own, reduce_op: own + others),
    )  # fmt: skip
    batch: Any = SimpleNamespace(source_tokens=7, target_tokens=4)
    watch = Reports(every=2, total_steps=4, lines=False)
    watch.on_train_start(trainer, task)
    for step in (1, 2, 3, 4):
        trainer.global_step = step
        clock[0] += 4 * step
        means.add("train/loss", torch.tensor(25.0), torch.tensor(10))
        watch.on_train_batch_end(trainer, task, None, batch, step - 1)
        watch.on_validation_start(trainer, task)
        clock[0] += 100
        watch.on_validation_end(trainer, task)
    pace = {"tokens_per_second": 2 * 11 * 3 / (12 + 16), "learning_rate": 0.0}  # of two steps
    assert [*logged] == [1, 3]
    assert logged[3] == watch.shown == {"train/loss": pytest.approx(54 / 40), **pace}
    assert written == [1, 2]
