"""Which precision where; and float16, whose scale neither clipping nor going on may notice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor

from translate.data.batching import collate
from translate.errors import UserError
from translate.models import registry
from translate.training import records, resources
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.resources import NONE, chosen_precision, lightning_name, multiply_in
from translate.training.run import TrainingRun, train
from translate.training.settings import TrainingConfig
from translate.training.step import TranslationTask
from translate.training.trainer import quieten_lightning

Config = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("precision", ["16-mixed", "tf32"])
def test_what_needs_a_gpu_is_refused_without_one(
    config: Config, tmp_path: Path, precision: str
) -> None:
    for accelerator, reason in (("cpu", "trainer.accelerator=cpu"), ("auto", "machine has none")):
        if accelerator == "auto" and torch.cuda.is_available():
            continue
        chosen = config(f"trainer.precision={precision}", f"trainer.accelerator={accelerator}")
        told = f"precision = {precision} needs an NVIDIA GPU, but .*{reason}: choose"
        with pytest.raises(UserError, match=told):
            train(chosen, tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(config: Config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"accelerator = gpu, .*: choose auto or cpu"):
        train(config("trainer.accelerator=gpu"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_tf32_is_float32_but_for_the_products() -> None:
    try:
        multiply_in("tf32")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        multiply_in("32-true")
    assert torch.get_float32_matmul_precision() == "highest"
    assert lightning_name("tf32") == "32-true"
    assert lightning_name("16-mixed") == "16-mixed"


@pytest.mark.parametrize(
    ("has_bf16", "ratio", "chosen"),
    [(True, 2.5, "bf16-mixed"), (True, 0.6, "32-true"), (False, 2.5, "32-true")],
)
def test_a_cpu_trains_in_bf16_where_it_multiplies_it_faster(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, ratio: float, chosen: str
) -> None:
    monkeypatch.setattr(resources, "_cpu_has_bf16", lambda: has_bf16)
    monkeypatch.setattr(resources, "products_in_bf16", lambda: ratio)
    assert chosen_precision("auto", "cpu") == chosen
    assert chosen_precision("64-true", "cpu") == "64-true"
    assert chosen_precision("auto", "cpu", noted="bf16-mixed") == "bf16-mixed"


def test_processes_started_at_once_agree_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_cpu_has_bf16", lambda: True)
    monkeypatch.setattr(resources, "products_in_bf16", lambda: 2.5)
    assert chosen_precision("auto", "cpu", nodes=2) == "32-true"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert chosen_precision("auto", "cpu") == "32-true"


def test_an_attempt_that_failed_decides_nothing(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    records.write(run, precision="64-true")
    train(config("trainer.precision=32-true", "trainer.max_steps=1"), run)
    assert records.read(run)["precision"] == "32-true"
    other = tmp_path / "other"
    other.mkdir()
    records.write(other, precision="64-true")
    train(config("trainer.precision=auto", "trainer.max_steps=1"), other)
    assert records.read(other)["precision"] != "64-true"


def test_another_job_for_a_part_of_the_trial_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had a core while the first products were timed, and none of the later ones."""
    own = itertools.cycle([0.4e-3, 0.9e-3])  # float32, bf16
    others = itertools.chain([9e-3] * 7, itertools.repeat(0.0))
    threads = torch.get_num_threads()
    monkeypatch.setattr(resources, "timeit", lambda *_, **__: next(own) + next(others))
    assert resources.products_in_bf16() == pytest.approx(0.4 / 0.9)
    assert torch.get_num_threads() == threads


def test_the_trial_of_products_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    assert 0 < resources.products_in_bf16() < math.inf
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_goes_on_in_the_numbers_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, or after a trial that came out otherwise."""
    monkeypatch.setattr(resources, "_cpu_has_bf16", lambda: True)
    monkeypatch.setattr(resources, "products_in_bf16", lambda: 2.5)
    train(config("trainer.precision=auto", "trainer.max_steps=2"), tmp_path / "run")
    assert records.read(tmp_path / "run")["precision"] == "bf16-mixed"
    monkeypatch.setattr(resources, "products_in_bf16", lambda: 0.6)
    train(config("trainer.precision=auto", "trainer.max_steps=4"), tmp_path / "run")
    assert records.read(tmp_path / "run")["precision"] == "bf16-mixed"
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("bf16-mixed") == 2
    assert "32-true" not in log


@pytest.mark.parametrize(("accelerator", "switched"), [("cpu", []), ("auto", [False])])
def test_training_on_a_gpu_leaves_no_attention_to_cudnn(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accelerator: str,
    switched: list[bool],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(L, "seed_everything", lambda *_, **__: None)
    called: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", called.append)
    nodes = TrainingConfig.model_validate(config(f"trainer.accelerator={accelerator}"))
    TrainingRun(nodes, tmp_path)._set_up_process()
    assert called == switched


class Watched(TranslationTask):
    """Keeps the gradient of the last step, as the optimizer gets it."""

    validation_step = None  # type: ignore[assignment]  # Lightning would ask for dev data

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        super().configure_gradient_clipping(*args, **kwargs)
        self.gradient = [p.grad.clone() for p in self.parameters() if p.grad is not None]


def trained(
    config: Config, scaler: torch.amp.GradScaler, *, steps: int, clip: float, going_on: Any = None
) -> tuple[list[Tensor], L.Trainer]:
    """The gradient of the last step; float16 is in its place by a scaler alone: a CPU has none."""
    quieten_lightning()
    nodes = TrainingConfig.model_validate(config("model.dropout=0.0"))
    torch.manual_seed(3)
    model = registry.build(nodes.model, source_vocab_size=11, target_vocab_size=11)
    task = Watched(
        model, label_smoothing=0.1, r_drop=0.0, word_dropout=0.0, compiler=None, packed_from=NONE,
        guidance=None, optimizer=nodes.optimizer, schedule=nodes.schedule,
        total_steps=9, seed=1,
    )  # fmt: skip
    words = [torch.tensor([5, 6, 7, 4]).int().numpy(), torch.tensor([8, 9]).int().numpy()]
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    precision.autocast_context_manager = lambda: torch.autocast("cpu", enabled=False)  # type: ignore[method-assign]
    trainer = L.Trainer(
        max_steps=steps, gradient_clip_val=clip or None, logger=False, accelerator="cpu",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[precision, AtomicCheckpointIO()],
    )  # fmt: skip
    batches = torch.utils.data.DataLoader([collate([0, 1], words, words)] * 9, batch_size=None)
    trainer.fit(task, batches, ckpt_path=going_on)
    return task.gradient, trainer


@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_the_scale_of_float16_is_no_part_of_the_gradient(config: Config, clip: float) -> None:
    scaled, _ = trained(config, torch.amp.GradScaler("cpu"), steps=1, clip=clip)
    plain, _ = trained(config, torch.amp.GradScaler("cpu", enabled=False), steps=1, clip=clip)
    for ours, wanted in zip(scaled, plain, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-8)


def test_the_scale_of_float16_survives_going_on(config: Config, tmp_path: Path) -> None:
    first = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    _, trainer = trained(config, first, steps=3, clip=0.0)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=2)
    trained(config, again, steps=4, clip=0.0, going_on=tmp_path / "last.ckpt")
    trained(config, whole := torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2),
            steps=4, clip=0.0)  # fmt: skip
    assert again.state_dict() == whole.state_dict()
    assert again.get_scale() == 64.0 * 4  # doubled after two steps, and after four


@pytest.mark.skipif(not torch.cuda.is_available(), reason="float16 trains on GPUs")
def test_a_run_in_float16(config: Config, tmp_path: Path) -> None:
    options = ["trainer.precision=16-mixed", "trainer.max_steps=3"]
    train(config(*options), tmp_path / "run")
    train(config(*options[:1], "trainer.max_steps=6"), tmp_path / "run")
    saved = AtomicCheckpointIO().load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert saved["MixedPrecision"]["scale"] > 0
