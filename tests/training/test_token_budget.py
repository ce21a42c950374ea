"""The tokens a batch may have: found once, bounded, and the run's own from then on."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import UserError
from translate.training import records, resources
from translate.training.resources import rows_that_fit
from translate.training.run import tokens_noted, train
from translate.training.settings import TrainerConfig

Config = Callable[..., dict[str, Any]]


@given(
    fixed=st.integers(0, 10**9), each=st.integers(1, 10**6), first=st.integers(1, 100),
    rows=st.integers(1, 10**5),
)  # fmt: skip
def test_of_rows_that_each_take_the_same_as_many_as_fit(
    fixed: int, each: int, first: int, rows: int
) -> None:
    assert rows_that_fit(lambda n: fixed + each * n, first, fixed + each * rows) == rows
    assert rows_that_fit(lambda n: fixed + each * n, first, fixed + each * (rows + 1) - 1) == rows


def test_a_probe_that_does_not_fit_is_halved() -> None:
    tried = []

    def peak(rows: int) -> int:
        tried.append(rows)
        if rows > 7:
            raise torch.OutOfMemoryError
        return 100 + 10 * rows

    assert rows_that_fit(peak, 16, 175) == 7
    assert tried == [16, 8, 4, 8, 2, 4]
    with pytest.raises(torch.OutOfMemoryError):
        rows_that_fit(lambda rows: peak(rows + 7), 16, 175)


@pytest.mark.parametrize(("room", "fits"), [(170, True), (169, False)])
def test_a_row_fits_though_two_do_not(room: int, fits: bool) -> None:
    def peak(rows: int) -> int:
        if rows > 1:
            raise torch.OutOfMemoryError
        return 170

    with nullcontext() if fits else pytest.raises(torch.OutOfMemoryError):
        assert rows_that_fit(peak, 16, room) == 1


def test_no_room_for_a_row_is_no_row() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        rows_that_fit(lambda rows: 100 + 10 * rows, 16, 109)


class TooLarge:
    """A model that a GPU has no memory for."""

    def parameters(self) -> list[torch.Tensor]:
        return []

    def zero_grad(self) -> None: ...

    def to(self, device: str) -> None:
        if device == "cuda":
            raise torch.OutOfMemoryError


def tokens_that_fit(options: TrainerConfig, task: Any, *, longest: int) -> int:
    return resources.tokens_that_fit(
        options, task, lambda batch: torch.zeros(()), longest=longest, precision="32-true",
        guided=False,
    )  # fmt: skip


def test_a_model_too_large_for_the_gpu_is_told(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TrainerConfig(**config()["trainer"])
    monkeypatch.setattr(resources, "on_gpu", lambda accelerator: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    task: Any = TooLarge()
    with pytest.raises(UserError, match=r"do not fit into the GPU's memory: lower data\.max_len"):
        tokens_that_fit(options, task, longest=9)


def test_the_longest_sentence_fits_whatever_is_found(config: Config) -> None:
    options = TrainerConfig(**config("trainer.accelerator=cpu")["trainer"])
    task: Any = None  # a CPU is not probed
    longest = resources.TOKENS_ON_CPU + 1
    assert tokens_that_fit(options, task, longest=longest) == longest


def losses(run: Path) -> dict[int, str]:
    with (run / "metrics.csv").open(newline="") as file:
        return {int(r["step"]): r["train/loss"] for r in csv.DictReader(file) if r["train/loss"]}


def test_a_run_that_goes_on_has_the_batches_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("trainer.max_steps=2", "trainer.samples=0", "trainer.validation_sentences=2",
             "trainer.precision=32-true", "trainer.accelerator=cpu")  # fmt: skip
    auto, run = ("data.tokens_per_batch=auto", *short), tmp_path / "auto"
    monkeypatch.setattr(resources, "TOKENS_ON_CPU", 300)
    train(config(*auto), run)
    assert records.read(run)["tokens_per_batch"] == 300
    assert "data.tokens_per_batch: 300" in (run / "train.log").read_text()
    monkeypatch.setattr(resources, "TOKENS_ON_CPU", 700)  # another machine
    train(config(*auto, "trainer.max_steps=4"), run)
    assert tokens_noted(run) == 300
    train(config(*short, "data.tokens_per_batch=300", "trainer.max_steps=4"), tmp_path / "plain")
    assert losses(run) == losses(tmp_path / "plain")
    record = records.read(run)
    (run / records.FILE).write_text('{"status": "finished", "steps": 4}')
    with pytest.raises(UserError, match=r"has no tokens_per_batch.*restore the file"):
        train(config(*auto, "trainer.max_steps=5"), run)
    assert record["status"] == "finished"


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_step_has_no_more_than_the_most(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    monkeypatch.setattr(resources, "MOST", 400)
    short = ("trainer.max_steps=1", "trainer.samples=0", "trainer.validation_sentences=2",
             f"trainer.accumulate={accumulate}", "trainer.accelerator=cpu")  # fmt: skip
    train(config("data.tokens_per_batch=auto", *short), tmp_path / "run")
    assert tokens_noted(tmp_path / "run") == 400 // accumulate


def test_the_processes_of_a_step_share_the_most(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "MOST", 400)
    made = config("trainer.devices=2", "trainer.accumulate=4", "trainer.accelerator=cpu")
    task: Any = None  # on a CPU none is tried
    assert tokens_that_fit(TrainerConfig(**made["trainer"]), task, longest=1) == 50


@pytest.mark.parametrize("together", ["NODE_RANK", "WORLD_SIZE", "SLURM_NTASKS"])
def test_processes_started_together_are_refused(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: str
) -> None:
    settings = config("data.tokens_per_batch=auto", "trainer.accelerator=cpu")
    settings["trainer"]["num_nodes" if together == "NODE_RANK" else "devices"] = 2
    monkeypatch.setenv(together, "0" if together == "NODE_RANK" else "2")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    settings["cache"] = str(tmp_path / "cache")
    told = "auto must be determined by one process before the others start"
    with pytest.raises(UserError, match=told):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "cache").exists()


def test_a_model_that_is_dealt_out_is_not_tried_whole(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "on_gpu", lambda accelerator: True)
    settings = config(
        "data.tokens_per_batch=auto", "trainer.strategy=fsdp", "trainer.averaging.kind=none"
    )
    with pytest.raises(UserError, match=r"one GPU, .*fsdp.*such as data\.tokens_per_batch=4096"):
        train(settings, tmp_path / "run")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="measures a GPU's memory")
@pytest.mark.parametrize("model", ["transformer", "rnn", "convolutional"])
def test_what_is_found_on_a_gpu_fits(config: Config, tmp_path: Path, model: str) -> None:
    train(
        config("data.tokens_per_batch=auto", "trainer.max_steps=1", model=model), tmp_path / "run"
    )
    assert tokens_noted(tmp_path / "run") > 1000


def test_auto_has_room_for_the_longest_draw(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "MOST", 1)
    options = config(
        "data.tokens_per_batch=auto", "tokenizer=unigram", "tokenizer.vocab_size=500",
        "tokenizer.sampling.alpha=0.2", "trainer.max_steps=1", "trainer.accelerator=cpu",
    )  # fmt: skip
    train(options, tmp_path / "run")
    assert (tmp_path / "run" / "bundle").is_dir()


def test_a_pair_that_is_left_out_does_not_size_a_batch(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "MOST", 1)
    options = config(
        "data.tokens_per_batch=auto", "data.max_length=12", "trainer.max_steps=1",
        "trainer.accelerator=cpu",
    )  # fmt: skip
    train(options, tmp_path / "run")
    noted = tokens_noted(tmp_path / "run")
    assert noted is not None
    assert noted <= 13
