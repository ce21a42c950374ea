"""One training step: its losses, its seeds, and on a device that is not the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor

from translate.data.batching import Batch, collate
from translate.models import registry
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.resources import NONE
from translate.training.settings import TrainingConfig
from translate.training.step import RunningMeans, TranslationTask
from translate.training.trainer import quieten_lightning

Config = Callable[..., dict[str, Any]]

TESTS = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
QUIET = [
    "trainer.max_steps=5", "trainer.log_every=4", "trainer.validate_every=5",
    "trainer.save_every=5",
]  # fmt: skip
FEEDING = ["model.input_feeding=true", "model.query=current", "model.attention=general"]


@pytest.mark.parametrize(
    "runs",
    [
        [("transformer", ["trainer.r_drop=1", "trainer.word_dropout=0.1", "search=beam"])],
        pytest.param(
            [
                ("transformer", ["trainer.guided_alignment.weight=0.5"]),
                ("transformer", ["model.positions=relative", "trainer.accumulate=2"]),
                ("transformer", ["model.self_attention=sliding_window", "search=sample"]),
                ("transformer", ["model.self_attention=linear", "search=diverse"]),
                ("transformer", ["model.positions=alibi", "trainer.activation_checkpointing=true"]),
                ("rnn", ["trainer.keep=2"]),
                ("rnn", [*FEEDING, "model.cell=gru"]),
                ("rnn", ["model.coverage=linguistic", "search=beam"]),
                ("rnn", ["model.attention=local_p", "model.local_score=additive"]),
                ("convolutional", []),
            ],
            marks=[pytest.mark.soak, pytest.mark.timeout(1200)],
        ),
    ],
)
def test_a_run_elsewhere_is_the_run_here_and_its_steps_wait_for_nothing(
    config: Callable[..., dict[str, Any]], tmp_path: Path, runs: list[tuple[str, list[str]]]
) -> None:
    """Without dropout, whose numbers are drawn otherwise on a CPU."""
    configurations = [
        json.dumps(config(*QUIET, "model.dropout=0", *more, model=model)) for model, more in runs
    ]
    program = str(Path(__file__).with_name("on_second_device.py"))
    done = subprocess.run(
        [sys.executable, program, str(tmp_path), *configurations],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(runs)
    for run, answer in zip(runs, answers, strict=True):
        found = json.loads(answer)
        assert len(found["here"]) == 2
        assert found["there"] == pytest.approx(found["here"], rel=1e-4), run
        assert found["waits"] == {}, run
        for search, (few, many) in found["searches"].items():
            assert few == many < 12, (run, search)  # for a batch, and for no token of it


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_model_keeps_its_contract_elsewhere() -> None:
    contract = ["-q", "-p", "no:cacheprovider", "tests/models/test_contract.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *contract],
        env=ENVIRONMENT | {"TEST_DEVICE": "second"}, cwd=TESTS.parent,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


unread: Any = None  # the batch, which decides nothing of a seed


def test_dropout_is_another_at_each_step_seed_and_process() -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        config = SimpleNamespace(seed=seed)
        task: Any = SimpleNamespace(config=config, global_rank=rank, device=torch.device("cpu"))
        TranslationTask.on_train_batch_start(task, unread, step)
        return torch.rand(()).item()

    places = [(seed, step, rank) for seed in (1, 2) for step in (0, 1, 2) for rank in (0, 1)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(1, 2, 0) == drawn(1, 2, 0)


def test_a_gpu_is_seeded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    for step in (0, 1, 0):
        config, device = SimpleNamespace(seed=1), torch.device("cuda", 0)
        task: Any = SimpleNamespace(config=config, global_rank=0, device=device)
        TranslationTask.on_train_batch_start(task, unread, step)
        assert torch.initial_seed() == seeds[-1]
    assert seeds[0] == seeds[2] != seeds[1]


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


class Watched(TranslationTask):
    """Keeps the gradient of the last step, as the optimizer gets it."""

    validation_step = None  # type: ignore[assignment]  # Lightning would ask for dev data

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        super().configure_gradient_clipping(*args, **kwargs)
        self.gradient = [p.grad.clone() for p in self.parameters() if p.grad is not None]


def new_task(config: Config) -> Watched:
    torch.manual_seed(3)
    nodes = TrainingConfig.model_validate(config("model.dropout=0.0"))
    model = registry.build(nodes.model, source_vocab_size=11, target_vocab_size=11)
    return Watched(model, nodes, compiler=None, packed_from=NONE, total_steps=9)


def sentences(*lengths: int) -> list[Any]:
    return [torch.randint(4, 11, (length,)).int().numpy() for length in lengths]


def trained(
    task: Watched, batches: list[Batch], going_on: Path | None = None, **options: Any
) -> tuple[list[Tensor], L.Trainer]:
    """The gradient of the last step, and the trainer."""
    quieten_lightning()
    trainer = L.Trainer(
        logger=False, accelerator="cpu", enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **options,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    trainer.fit(task, loader, ckpt_path=going_on)
    return task.gradient, trainer


@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_accumulated_batches_of_unequal_size_equal_one_big_batch(
    config: Config, clip: float
) -> None:
    task = new_task(config).double()
    batches = [
        collate([0], sentences(3), sentences(2)),
        collate([1, 2, 3], sentences(9, 5, 7), sentences(4, 9, 8)),
    ]
    tokens = sum(int(batch.target_lengths.sum()) for batch in batches)
    summed = torch.stack([task.training_losses(batch).smoothed for batch in batches]).sum()
    expected: list[Tensor] = list(torch.autograd.grad(summed / tokens, list(task.parameters())))
    norm = torch.cat([gradient.flatten() for gradient in expected]).norm()
    if clip:
        assert norm > clip
        expected = [gradient * clip / (norm + 1e-6) for gradient in expected]
    gradient, _ = trained(
        task, batches, max_steps=1, accumulate_grad_batches=2, gradient_clip_val=clip or None,
        precision="64-true",
    )  # fmt: skip
    for actual, wanted in zip(gradient, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-6, atol=1e-9)  # float32 scales it
    assert not task.gradients()  # the next forward has their memory


def in_float16(
    config: Config, scaler: torch.amp.GradScaler, *, steps: int, clip: float = 0.0,
    going_on: Path | None = None,
) -> tuple[list[Tensor], L.Trainer]:  # fmt: skip
    """A training whose float16 is a scaler alone: a CPU has none."""
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    precision.autocast_context_manager = lambda: torch.autocast("cpu", enabled=False)  # type: ignore[method-assign]
    task = new_task(config)
    batches = [collate([0, 1], sentences(3, 4), sentences(2, 5))] * 9
    return trained(
        task, batches, going_on, max_steps=steps, gradient_clip_val=clip or None,
        plugins=[precision, AtomicCheckpointIO()],
    )  # fmt: skip


@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_the_scale_of_float16_is_no_part_of_the_gradient(config: Config, clip: float) -> None:
    scaled, _ = in_float16(config, torch.amp.GradScaler("cpu"), steps=1, clip=clip)
    plain, _ = in_float16(config, torch.amp.GradScaler("cpu", enabled=False), steps=1, clip=clip)
    for ours, wanted in zip(scaled, plain, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-8)


def test_the_scale_of_float16_survives_going_on(config: Config, tmp_path: Path) -> None:
    first = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    _, trainer = in_float16(config, first, steps=3)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=2)
    in_float16(config, again, steps=4, going_on=tmp_path / "last.ckpt")
    assert again.get_scale() == 64.0 * 4  # doubled after two steps, and after four
