"""What a run writes: checkpoints, metrics, provenance."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from translate.errors import UserError
from translate.training import provenance
from translate.training.checkpoint import AtomicCheckpointIO, remove_stale_temporaries
from translate.training.metrics import MetricsFile


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


def test_a_failed_save_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    io = AtomicCheckpointIO()
    io.save_checkpoint({"step": 1}, path)

    def full_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("translate.training.checkpoint.os.fsync", full_disk)
    with pytest.raises(UserError, match=r"last\.ckpt: No space left.*intact"):
        io.save_checkpoint({"step": 2}, path)
    assert torch.load(path) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_stale_temporaries_are_removed(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt.tmp").write_bytes(b"half")
    (tmp_path / "last.ckpt").write_bytes(b"whole")
    remove_stale_temporaries(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_provenance_tells_how_far_a_run_is(tmp_path: Path) -> None:
    assert provenance.run_status(tmp_path) == "new"
    provenance.write(tmp_path, status="unfinished")
    assert provenance.run_status(tmp_path) == "unfinished"
    provenance.write(tmp_path, status="finished", steps=7)
    assert provenance.run_status(tmp_path) == "finished"
    record = provenance.read(tmp_path)
    assert record["steps"] == 7
    assert "torch" in record["versions"]


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text("{")
    with pytest.raises(UserError, match=r"provenance\.json.*is .* the folder of a run\?"):
        provenance.run_status(tmp_path)
