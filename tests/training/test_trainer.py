"""Lightning as a run sets it up: metrics.csv, and the processes that it starts."""

from __future__ import annotations

import csv
import platform
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from translate.cli.main import StoppedError
from translate.errors import UserError
from translate.training import trainer as trainer_module
from translate.training.checkpoints import LastCheckpoint
from translate.training.settings import TrainingConfig
from translate.training.trainer import (
    MetricsFile,
    build_trainer,
    ending_together,
    quieten_lightning,
)

Config = Callable[..., dict[str, Any]]


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


def test_a_gpu_that_is_none_of_nvidias_is_left_alone(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Mac's, which Lightning would take, in a run whose numbers were chosen for a CPU."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = TrainingConfig.model_validate(config("trainer.accelerator=auto"))
    last = LastCheckpoint(
        tmp_path / "last.ckpt", save_every=1, validate_every=1, total_steps=1, max_minutes=None
    )
    quieten_lightning()
    trainer = build_trainer(options.trainer, tmp_path, 1, [], last, precision="32-true")
    assert trainer.strategy.root_device.type == "cpu"


@pytest.mark.parametrize("end", [UserError("the loss is nan"), StoppedError(signal.SIGTERM)])
def test_a_failure_ends_the_other_processes_and_what_would_end_this_one(
    monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    """Lightning's thread kills the first process, of which a sweep has further runs to train."""
    monkeypatch.setattr(trainer_module, "GRACE", 0.1)
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), num_processes=4, num_nodes=1)
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=launcher))
    with subprocess.Popen(["sleep", "60"]) as first:
        observer = _ChildProcessObserver(first.pid, launcher.procs)
        for command in (["false"], ["sleep", "60"]):
            launcher.procs.append(subprocess.Popen(command))
        children = list(launcher.procs)
        with pytest.raises(type(end)), ending_together(trainer):
            raise end
        ended = [child.returncode for child in children]
        has_nothing_left = observer._run()
        first.terminate()
    assert first.returncode == -signal.SIGTERM
    assert has_nothing_left
    assert ended == [1, -signal.SIGKILL]
