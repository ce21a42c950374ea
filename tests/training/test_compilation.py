"""torch.compile: the same losses and gradients, and two programs however many shapes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from translate.data.batching import collate
from translate.errors import UserError
from translate.models import registry
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.objectives import CrossEntropy
from translate.training.preflight import check_compiler
from translate.training.resources import MOST_PROGRAMS, NONE, Compiler
from translate.training.run import train
from translate.training.settings import TrainingConfig
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
PROGRAMS = 2  # for a batch and for a lone sentence
SMALL = ["model.dropout=0.0", "model.encoder_layers=1", "model.decoder_layers=1"]
compiling = pytest.mark.skipif(shutil.which("g++") is None, reason="it takes a C++ compiler")


def python(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def programs(config: dict[str, Any], backend: str, *, exact: float) -> int:
    """How many it takes to read batches of many shapes as the model itself does."""
    twin = str(Path(__file__).with_name("compiled_and_eager.py"))
    return int(python(twin, json.dumps(config), backend, str(exact)).stdout)


def test_two_programs_read_batches_of_every_shape(config: Config) -> None:
    assert programs(config(*SMALL), "eager", exact=0.0) == PROGRAMS


@pytest.mark.soak
@compiling
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("transformer", []),
        ("transformer", ["trainer.activation_checkpointing=true"]),
        ("transformer", ["model.positions=rotary", "model.num_kv_heads=1"]),
        ("transformer", ["model.positions=relative", "model.self_attention=sliding_window"]),
        ("transformer", ["model.positions=alibi", "model.self_attention=strided"]),
        ("transformer", ["model.self_attention=linear", "model.norm=post"]),
        ("convolutional", []),
    ],
)
def test_a_compiled_model_learns_the_same(config: Config, model: str, more: list[str]) -> None:
    assert programs(config(*SMALL, *more, model=model), "inductor", exact=1e-5) == PROGRAMS


@pytest.mark.soak
@compiling
def test_a_compiled_run_goes_on(overrides: Callable[..., list[str]], tmp_path: Path) -> None:
    tiny = overrides(*SMALL, "trainer.compile=true", "trainer.averaging.kind=none")
    options = [each for each in tiny if each != "trainer.averaging.every=2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = ["-m", "translate", "train"]
    done = python(*command, f"run={whole}", *options)
    assert "trainer.compile: 1 program read all batches" in done.stderr
    python(*command, f"run={broken}", *options, "trainer.max_steps=5")
    python(*command, f"run={broken}", *options)
    weights, expected = (
        AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
        for run in (broken, whole)
    )
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-4, atol=1e-5)


def task(config: dict[str, Any], compiler: Any) -> TranslationTask:
    nodes = TrainingConfig.model_validate(config)
    model = registry.build(config["model"], source_vocab_size=50, target_vocab_size=50)
    return TranslationTask(
        model, label_smoothing=0.1, r_drop=0.0, word_dropout=0.0, compiler=compiler,
        packed_from=NONE, guidance=None, optimizer=nodes.optimizer, schedule=nodes.schedule,
        total_steps=1, seed=1,
    ).train()  # fmt: skip


def test_training_is_compiled_and_validation_is_not(config: Config) -> None:
    calls = []

    def compiler(read: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*batch: Any, **options: Any) -> Any:
            calls.append(batch)
            return read(*batch, **options)

        return compiled

    words = [torch.tensor([5, 6, 7]).int().numpy()]
    trained = task(config(*SMALL), compiler)
    trained.training_losses(collate([0], words, words))
    assert len(calls) == 1
    trained.eval().losses(collate([0], words, words), CrossEntropy(0.0))
    assert len(calls) == 1


def test_what_cannot_be_compiled_is_told() -> None:
    def read(*batch: Any, need_alignment: bool) -> Any:
        return batch[0] if batch[0].sum() > 0 else None

    with pytest.raises(UserError, match=r"cannot compile this model \(.+\): set it to false"):
        Compiler("eager")(read)(torch.ones(2, 3), need_alignment=False)


def test_a_program_for_one_width_alone_is_told() -> None:
    """As PyTorch's compiler makes of convolutions on some processors."""

    def read(*batch: Any, need_alignment: bool) -> Any:
        return batch[0] * batch[0].shape[1] if batch[0].shape[1] == 3 else batch[0]

    with pytest.raises(UserError, match=r"cannot compile this model \(.+\): set it to false"):
        Compiler("eager")(read)(torch.ones(2, 3), need_alignment=False)


def test_every_run_of_a_sweep_is_compiled_anew() -> None:
    """All compile one function, whose programs PyTorch counts together."""

    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def read(self, *batch: Any, need_alignment: bool) -> Any:
            return batch[0] * self.factor

    for factor in range(MOST_PROGRAMS + 3):
        compiler = Compiler("eager")
        found = compiler(Model(factor).read)(torch.ones(2, 3), need_alignment=False)
        assert (float(found.sum()), compiler.programs) == (6 * factor, 1)


def test_without_a_compiler_it_is_refused_before_anything_is_read(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no working C++ compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", fail)
    message = r"compile = true, but .*\(no working C\+\+ compiler\): install a C\+\+ compiler"
    with pytest.raises(UserError, match=message):
        check_compiler("cpu")
    with pytest.raises(UserError, match=message):
        train(config("trainer.compile=true"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
