"""A step's gradient is the mean over its tokens, however they were dealt out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked import torchrun
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from safetensors.torch import load_file
from training_runs import before_step, numbers

from translate.data.corpus import prepare, read_nodes
from translate.errors import UserError
from translate.training import records
from translate.training import run as run_module
from translate.training import trainer as trainer_module
from translate.training.launch import is_first_process, refuse_other_launch, started_by_the_first
from translate.training.run import train
from translate.training.settings import TrainerConfig, TrainingConfig

Config = Callable[..., dict[str, Any]]
EXACT = ["trainer.precision=64-true", "model.dropout=0.0", "trainer.max_steps=6"]


@pytest.mark.parametrize("model", ["transformer", pytest.param("rnn", marks=pytest.mark.soak)])
def test_two_processes_equal_one_with_two_batches_a_step(
    config: Config,
    overrides: Callable[..., list[str]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    model: str,
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    train(config(*EXACT, "trainer.accumulate=2", model=model), alone)
    options = overrides(*EXACT, "trainer.devices=2", "trainer.accelerator=cpu", model=model)
    said = tmp_path / "said"
    assert torchrun(2, ["train", f"run={together}", *options], said) == [0, 0], said.read_text()
    assert capfd.readouterr().out == ""
    assert "2 processes" in said.read_text()
    for name, count in (("dev/loss", 1), ("dev/bleu", 1), ("train/loss", 6)):
        assert len(numbers(alone, name)) == count
        # six digits are kept
        assert numbers(together, name) == pytest.approx(numbers(alone, name), rel=1e-5)
    expected = load_file(alone / "bundle" / "model.safetensors")
    actual = load_file(together / "bundle" / "model.safetensors")
    for name, weight in expected.items():
        torch.testing.assert_close(actual[name], weight, rtol=0, atol=1e-6, msg=name)
    lines = (together / "train.log").read_text(encoding="utf-8").splitlines()
    assert sum("training" in line for line in lines) == 1  # by one of the processes


@pytest.mark.soak
def test_one_process_goes_on_with_the_batches_that_two_left(
    config: Config,
    overrides: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    options = overrides("trainer.devices=2", "trainer.accelerator=cpu", "trainer.max_steps=3")
    command = [sys.executable, "-m", "translate", "train", f"run={run}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr

    taken: list[list[int]] = []
    settings = config("trainer.devices=1", "trainer.accelerator=cpu", "trainer.max_steps=7")
    with before_step(lambda task, batch, step: taken.append(batch.ids.tolist())):
        train(settings, run)
    corpus = prepare(
        *read_nodes(settings["data"], settings["tokenizer"]), cache=Path(settings["cache"])
    )
    data = run_module.new_data(TrainingConfig.model_validate(settings), corpus)
    data.tokens_per_batch = settings["data"]["tokens_per_batch"]
    of_the_run = islice(iter(data.batches()), 2 * 3, 2 * 3 + 4)
    assert taken == [[draw.pair for draw in batch] for batch in of_the_run]


def test_a_signal_to_one_process_ends_them_all(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    """As kill, timeout and supervisors send it."""
    run = tmp_path / "run"
    options = overrides("trainer.devices=2", "trainer.accelerator=cpu", "trainer.max_steps=5000",
                        "trainer.validate_every=5")  # fmt: skip
    command = [sys.executable, "-m", "translate", "train", f"run={run}", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            begun = next((line for line in process.stderr if "step 5: dev BLEU" in line), None)
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()  # its child has the pipe as well
        finally:
            process.kill()
    assert begun is not None
    assert process.returncode == 143, said
    assert "Error" not in said
    assert said.count("stopped by SIGTERM, everything is saved") == 2


@pytest.mark.soak
def test_a_run_that_fails_in_all_its_processes_ends_no_other_of_its_sweep(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    options = overrides("trainer.devices=2", "trainer.accelerator=cpu",
                        "trainer.gradient_clip=0", "optimizer.learning_rate=1e38,1e-3")  # fmt: skip
    command = [sys.executable, "-m", "translate", "train", "-m", f"run={tmp_path / 'run'}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("translate: error: the loss is not finite") == 2
    assert records.run_status(tmp_path / "run-optimizer.learning_rate=0.001") == "finished"


def test_a_signal_at_the_end_ends_no_process_before_the_first_has_noted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning would kill the first, while it still draws curves and records the end."""
    noted: list[str] = []
    strategy = SimpleNamespace(
        broadcast=lambda score: score, barrier=lambda: noted.append(records.run_status(tmp_path))
    )
    trainer = SimpleNamespace(global_step=6, strategy=strategy, early_stopping_callback=None)
    stop = SimpleNamespace(
        signalled=lambda: signal.SIGTERM, interrupted=False, out_of_time=False, total_steps=6
    )
    dev = SimpleNamespace(last_step=6, best=1.0)
    run: Any = object.__new__(run_module.TrainingRun)
    run.run, run.trainer, run.stop, run.dev = tmp_path, trainer, stop, dev
    with pytest.raises(run_module.Interrupted, match="is finished"):
        run.finish()
    assert noted == ["finished"]


POISONED = """
import os, sys
from translate.cli.main import main
from translate.training.step import TranslationTask
step = TranslationTask.training_step
def poisoned(self, batch, batch_idx):
    here = os.environ.get("LOCAL_RANK") == "1" and batch_idx == 7
    return step(self, batch, batch_idx) * (float("nan") if here else 1)
TranslationTask.training_step = poisoned
sys.exit(main())
"""


@pytest.mark.soak
def test_a_loss_that_is_not_finite_in_one_process_is_told_by_all(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    run, program = tmp_path / "run", tmp_path / "program.py"
    program.write_text(POISONED, encoding="utf-8")
    options = overrides("trainer.devices=2", "trainer.accelerator=cpu")
    command = [sys.executable, str(program), "train", f"run={run}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("translate: error: the loss is not finite at step 8") == 2
    assert json.loads((run / "not_finite.json").read_bytes())["step"] == 8


@pytest.mark.parametrize(
    ("variables", "main", "started"),
    [
        ({}, True, False),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, False, True),  # Lightning's: of this machine …
        ({"NODE_RANK": "1"}, False, False),  # … and the first of another, and what that starts
        ({"LOCAL_RANK": "1", "NODE_RANK": "1"}, False, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}, True, False),  # torchrun
        ({"RANK": "1", "LOCAL_RANK": "1", "GROUP_RANK": "0"}, False, False),
        ({"RANK": "8", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False, False),
        # which numbers alone: the machines that SLURM numbers meet in any order
        ({"TORCHELASTIC_RUN_ID": "a", "RANK": "0", "SLURM_PROCID": "1"}, True, False),
        ({"TORCHELASTIC_RUN_ID": "a", "RANK": "2", "SLURM_PROCID": "0"}, False, False),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, True, False),
        ({"SLURM_PROCID": "8", "SLURM_LOCALID": "0"}, False, False),
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False, True),  # Lightning's, in a task of SLURM
    ],
)
def test_one_process_of_all_machines_writes_for_those_that_it_starts(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], main: bool, started: bool
) -> None:
    start_as(monkeypatch, **variables)
    assert is_first_process() == main
    assert started_by_the_first() == started


def start_as(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """The variables of one that launches processes, and of no other."""
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in LAUNCHED:
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


LAUNCHED = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
            "TORCHELASTIC_RUN_ID")  # fmt: skip
SRUN = {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0",
        "SLURM_JOB_NAME": "train", "SLURM_NTASKS_PER_NODE": "2"}  # fmt: skip
OTHERS = "other processes were started than trainer.devices × trainer.num_nodes = "
SHELL = SRUN | {"SLURM_JOB_NAME": "interactive", "SLURM_STEP_NUM_TASKS": "1"}


@pytest.mark.parametrize(
    ("variables", "devices", "nodes", "message"),
    [
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 1, 1, OTHERS),
        ({"RANK": "0", "WORLD_SIZE": "4"}, 2, 1, "WORLD_SIZE = 4: .* 2 × 1 asks for"),
        (SRUN, 1, 1, OTHERS),
        (SHELL | {"SLURM_STEP_NUM_TASKS": "2"}, 1, 1, OTHERS),
        ({"RANK": "0", "WORLD_SIZE": ""}, 1, 2, "nothing started this process together with"),
        ({}, 1, 2, r"trainer\.num_nodes = 2, .* torchrun or srun .* trainer\.num_nodes=1"),
        (SHELL, 1, 2, r"trainer\.num_nodes = 2, .* torchrun or srun"),
    ],
)  # fmt: skip
def test_processes_that_would_not_train_together_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    devices: int,
    nodes: int,
    message: str,
) -> None:
    start_as(monkeypatch, **variables)
    with pytest.raises(UserError, match=message):
        refuse_other_launch(devices, nodes)


@pytest.mark.parametrize(
    ("variables", "devices", "nodes", "slurm"),
    [
        ({}, 2, 1, False),  # Lightning starts the second …
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, 2, 1, False),  # … which is this
        ({"NODE_RANK": "1"}, 1, 2, False),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 2, 2, False),
        (SRUN, 2, 1, True),
        (SRUN, 1, 2, True),
        (SHELL | {"SLURM_STEP_NUM_TASKS": "2"}, 2, 1, True),  # srun in such a shell
        (SHELL, 2, 1, False),
        (SRUN | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, 1, 1, False),  # of a larger job
    ],
)
def test_processes_that_train_together_know_who_started_them(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    devices: int,
    nodes: int,
    slurm: bool,
) -> None:
    start_as(monkeypatch, **variables)
    refuse_other_launch(devices, nodes)
    options = config("trainer.accelerator=cpu", f"trainer.devices={devices}")["trainer"]
    environments = trainer_module._cluster(TrainerConfig(**options | {"num_nodes": nodes}))
    of_slurm = [each for each in environments if isinstance(each, SLURMEnvironment)]
    assert bool(of_slurm) == slurm
    assert not any(each.auto_requeue for each in of_slurm)


def test_a_process_that_would_train_alone_among_several_touches_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_as(monkeypatch, **SRUN | {"SLURM_PROCID": "1"})
    with pytest.raises(UserError, match=OTHERS):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start_as(monkeypatch, **{name: SRUN[name] for name in SRUN if name != "SLURM_PROCID"})
    train(config("trainer.max_steps=1"), tmp_path / "run")  # as the message says
    assert records.run_status(tmp_path / "run") == "finished"
