"""torch.compile: the same losses and gradients, and few programs however many shapes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from translate.data.batching import Batch, collate
from translate.errors import UserError
from translate.models import registry
from translate.training.compilation import Compiler, check_compiler
from translate.training.loss import CrossEntropy
from translate.training.module import TranslationTask
from translate.training.run import train

Config = Callable[..., dict[str, Any]]
MOST = 4  # programs: encoder and decoder, each for a batch and for a lone sentence


def batch(rows: int, longest: int) -> Batch:
    random = np.random.default_rng((rows, longest))
    sides = [
        [random.integers(4, 50, size=random.integers(1, longest + 1)).astype(np.int32)
         for _ in range(rows)] for _ in range(2)
    ]  # fmt: skip
    return collate(list(range(rows)), *sides)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling takes a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler has its own way with warnings
@pytest.mark.parametrize("model", ["transformer", "convolutional"])
def test_compiled_equals_eager_in_a_bounded_number_of_programs(config: Config, model: str) -> None:
    options = config("model.dropout=0.0", model=model)
    torch.manual_seed(0)
    network = registry.build(**options["model"], source_vocab_size=50, target_vocab_size=50)
    compiler = Compiler()
    eager, compiled = (
        TranslationTask(
            network, label_smoothing=0.1, r_drop=0.0, word_dropout=0.0, compiler=chosen,
            packed=False, guidance=None, optimizer={}, schedule={}, total_steps=1, seed=1,
        ).train()
        for chosen in (None, compiler)
    )  # fmt: skip
    for shape in ((4, 7), (5, 9), (3, 20), (9, 4), (1, 6), (2, 31), (16, 12), (7, 7), (1, 40)):
        losses, gradients = [], []
        for task in (eager, compiled):
            loss = task.training_losses(batch(*shape)).smoothed
            losses.append(loss.detach())
            gradients.append(torch.autograd.grad(loss, list(network.parameters())))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert 2 <= compiler.programs <= MOST
    before = compiler.programs
    compiled.eval()
    compiled.losses(batch(3, 5), CrossEntropy(0.0))  # a validation compiles nothing
    assert compiler.programs == before


def test_without_a_compiler_it_is_refused_before_anything_is_read(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no working C++ compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", fail)
    message = r"compile = true, but .*\(no working C\+\+ compiler\): install a C\+\+ compiler"
    with pytest.raises(UserError, match=message):
        check_compiler()
    with pytest.raises(UserError, match=message):
        train(config("trainer.compile=true"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
