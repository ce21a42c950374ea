"""trainer.strategy=fsdp: weights dealt out to the processes, and nothing else changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from translate.errors import UserError
from translate.training import provenance
from translate.training.checkpoint import AtomicCheckpointIO
from translate.training.run import train

Config = Callable[..., dict[str, Any]]
PLAIN = ["trainer.averaging.kind=none"]
EXACT = [
    *PLAIN,
    "model.dropout=0.0",
    "trainer.precision=32-true",
    "trainer.validate_every=3",
    "optimizer.eps=1e-5",
]  # Adam would make steps of the rounding of gradients that are 0


def started(run: Path, options: list[str]) -> None:
    """Trained in processes of its own."""
    command = [sys.executable, "-m", "translate", "train", f"run={run}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.parametrize(
    "legs",
    [[("fsdp", 6)], pytest.param([("ddp", 2), ("fsdp", 4), ("ddp", 6)], marks=pytest.mark.soak)],
    ids=["sharded", "gone on with"],
)
def test_sharded_training_equals_one_process(
    config: Config,
    overrides: Callable[..., list[str]],
    tmp_path: Path,
    legs: list[tuple[str, int]],
) -> None:
    """Weights and moments of one process that accumulates, from whichever checkpoint it went on."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    train(config(*EXACT, "trainer.accumulate=2", "trainer.max_steps=6"), alone)
    for strategy, steps in legs:
        options = overrides(
            *EXACT, "trainer.devices=2", "trainer.accelerator=cpu",
            f"trainer.strategy={strategy}", f"trainer.max_steps={steps}",
        )  # fmt: skip
        started(together, options)
    expected, actual = (
        AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")
        for run in (alone, together)
    )
    assert actual["state_dict"].keys() == expected["state_dict"].keys()
    for name, weight in expected["state_dict"].items():
        torch.testing.assert_close(actual["state_dict"][name], weight, rtol=0, atol=2e-5, msg=name)
    theirs, ours = (each["optimizer_states"][0] for each in (expected, actual))
    assert [group["params"] for group in ours["param_groups"]] == [
        group["params"] for group in theirs["param_groups"]
    ]
    for number, state in theirs["state"].items():
        torch.testing.assert_close(
            ours["state"][number]["exp_avg"], state["exp_avg"], rtol=0, atol=1e-6
        )
    saved, whole = (load_file(run / "bundle" / "model.safetensors") for run in (together, alone))
    assert saved.keys() == whole.keys()


def test_patience_that_is_spent_stays_spent_where_weights_are_dealt_out(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Also where Lightning reads the checkpoint only after the weights are dealt out."""
    for steps in (8, 9):
        options = overrides(
            *PLAIN, "trainer.strategy=fsdp", "trainer.devices=1", "trainer.accelerator=cpu",
            "trainer.validate_every=1", "trainer.patience=1", f"trainer.max_steps={steps}",
            "trainer.samples=0", "optimizer.learning_rate=1e-12",
        )  # fmt: skip
        started(tmp_path / "run", options)
    assert provenance.read(tmp_path / "run")["steps"] == 2


@pytest.mark.parametrize(
    ("override", "found", "remedy"),
    [
        ("trainer.averaging.kind=ema", "trainer.averaging.kind=ema", "trainer.averaging.kind=none"),
        ("trainer.precision=64-true", "trainer.precision=64-true", "trainer.precision=auto"),
        ("trainer.compile=true", "trainer.compile=true", "trainer.compile=false"),
        ("trainer.minimum_risk.weight=0.5", "weight=0.5", "trainer.minimum_risk.weight=0"),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    config: Config, tmp_path: Path, override: str, found: str, remedy: str
) -> None:
    chosen = config(*PLAIN, "trainer.strategy=fsdp", override)
    with pytest.raises(UserError, match=f"fsdp cannot go with .*{found}.*: choose .*{remedy}"):
        train(chosen, tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_recurrent_model_is_not_sharded(config: Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"with model.family=rnn: choose model=transf"):
        train(config(*PLAIN, "trainer.strategy=fsdp", model="rnn"), tmp_path / "run")
