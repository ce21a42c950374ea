"""Averages of checkpoints: the mean of their weights, in a bundle that translates."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer

from translate.errors import UserError
from translate.extras.checkpoint_average import average_checkpoints, choose, kept, mean_weights
from translate.inference import bundle, translator
from translate.run_folder import read_curves
from translate.training import callbacks, records
from translate.training.averaging import WEIGHTS, for_use
from translate.training.checkpoints import AtomicCheckpointIO, LastCheckpoint
from translate.training.run import train

Config = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("average")


@pytest.fixture
def run(config: Config, folder: Path) -> Path:
    """A run of 8 steps that keeps the last three of its four validations."""
    path = folder / "run"
    if not path.exists():
        settings = ("trainer.max_steps=8", "trainer.validate_every=2", "trainer.keep=3")
        train(config(*settings), path)
    return path


def test_the_latest_validations_are_kept(run: Path) -> None:
    assert list(kept(run)) == [4, 6, 8]
    assert (run / "checkpoints" / "last.ckpt").exists()


def test_the_bundle_holds_the_mean(run: Path, tmp_path: Path) -> None:
    average_checkpoints(run, [4, 8], tmp_path / "mean")
    found = bundle.load(tmp_path / "mean" / "bundle")
    states = [
        torch.load(run / "checkpoints" / f"step-{step:07d}.ckpt", weights_only=True)[WEIGHTS]
        for step in (4, 8)
    ]
    differ = False
    for name, value in found.model.state_dict().items():
        first, second = (state[f"model.{name}"] for state in states)
        torch.testing.assert_close(value, (first + second) / 2)
        differ |= not torch.equal(first, second)
    assert differ
    assert found.config.extra["steps"] == [4, 8]
    assert "dev_bleu" not in found.config.extra
    assert isinstance(translator.load(tmp_path / "mean").translate(["der Hund"])[0], str)


def test_the_mean_of_one_is_that_one(run: Path) -> None:
    path = kept(run)[6]
    state = torch.load(path, weights_only=True)[WEIGHTS]
    for name, value in mean_weights([path]).items():
        assert torch.equal(value.float(), state[f"model.{name}"])
    for name, value in mean_weights([path] * 7).items():  # whose sum float32 would round
        assert torch.equal(value.float(), state[f"model.{name}"])


def test_last_and_best_are_chosen(run: Path, tmp_path: Path) -> None:
    assert choose(run, count=2, best=False) == [6, 8]
    other = tmp_path / "other"
    (other / "checkpoints").mkdir(parents=True)
    for step in (2, 4, 6):
        (other / "checkpoints" / f"step-{step:07d}.ckpt").touch()
    (other / "metrics.csv").write_text("step,dev/bleu\n1,9.0\n3,2.0\n5,4.0\n")
    assert choose(other, count=2, best=True) == [2, 6]
    (other / "metrics.csv").write_text("step,dev/bleu\n1,9.0\n3,2.0\n5,2.0\n")
    assert choose(other, count=2, best=True) == [2, 6]  # of equals the later


def test_best_are_not_chosen_among_checkpoints_without_a_score(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for step in (2, 4, 6):
        (tmp_path / "checkpoints" / f"step-{step:07d}.ckpt").touch()
    (tmp_path / "metrics.csv").write_text("step,dev/bleu\n1,9.0\n")
    with pytest.raises(UserError, match=r"metrics\.csv has no dev/bleu of step 4, 6.*last_2"):
        choose(tmp_path, count=2, best=True)
    assert choose(tmp_path, count=2, best=False) == [4, 6]


def test_before_averaging_begins_a_checkpoint_is_used_with_the_weights_of_its_step(
    config: Config, tmp_path: Path
) -> None:
    settings = ("trainer.max_steps=6", "trainer.validate_every=2", "trainer.keep=3")
    train(config(*settings, "trainer.averaging.start=0.5"), tmp_path / "run")
    trained = operator.itemgetter("state_dict")
    early, _, late = (torch.load(p, weights_only=True) for p in kept(tmp_path / "run").values())
    assert all(torch.equal(for_use(early)[name], value) for name, value in trained(early).items())
    assert not any(torch.equal(for_use(late)[name], value) for name, value in trained(late).items())


def test_fewer_to_keep_leaves_the_latest(config: Config, tmp_path: Path) -> None:
    settings = ("trainer.validate_every=1",)
    train(config(*settings, "trainer.max_steps=4", "trainer.keep=4"), tmp_path / "run")
    train(config(*settings, "trainer.max_steps=6", "trainer.keep=2"), tmp_path / "run")
    assert list(kept(tmp_path / "run")) == [5, 6]


def test_a_run_that_was_moved_keeps_its_best_and_its_latest(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([30.0, 20.0, 10.0, 25.0, 5.0])
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: next(scores))
    settings = ("trainer.validate_every=1", "trainer.keep=2")
    train(config(*settings, "trainer.max_steps=3"), tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    before = (tmp_path / "new" / "checkpoints" / "best.ckpt").read_bytes()
    train(config(*settings, "trainer.max_steps=5"), tmp_path / "new")
    assert (tmp_path / "new" / "checkpoints" / "best.ckpt").read_bytes() == before
    assert list(kept(tmp_path / "new")) == [4, 5]
    assert not (tmp_path / "old").exists()


def test_a_run_that_goes_on_from_its_best_counts_and_keeps_as_one_from_its_last(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([10.0, 30.0, 20.0, 5.0, 6.0])
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: next(scores))
    settings = ("trainer.validate_every=2", "trainer.keep=3")
    run = tmp_path / "run"
    train(config(*settings, "trainer.max_steps=5"), run)
    (run / "checkpoints" / "best.ckpt").replace(run / "checkpoints" / "last.ckpt")
    train(config(*settings, "trainer.max_steps=7"), run)
    assert [step for step, _ in read_curves(run / "metrics.csv")["dev/bleu"]] == [2, 4, 6, 7]
    assert list(kept(run)) == [4, 6, 7]
    assert choose(run, count=2, best=True)


def test_the_same_steps_are_kept_in_however_many_calls(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a call is out of time there is one more validation."""
    settings = ("trainer.max_steps=9", "trainer.validate_every=3", "trainer.keep=3")
    run, ends = tmp_path / "run", LastCheckpoint.on_train_batch_end

    def late(self: LastCheckpoint, trainer: Trainer, *rest: Any) -> None:
        self.deadline = -math.inf if trainer.global_step in (4, 8) else math.inf
        ends(self, trainer, *rest)

    monkeypatch.setattr(LastCheckpoint, "on_train_batch_end", late)
    for steps in (4, 8, 9):
        train(config(*settings), run)
        assert records.read(run)["steps"] == steps
    assert list(kept(run)) == [3, 6, 9]


def test_what_was_not_kept_cannot_be_averaged(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has kept 3 checkpoints, but averaging needs 5: .*trainer\.keep=5"
    ):
        choose(run, count=5, best=False)


def test_checkpoints_of_different_models_are_not_averaged(run: Path, tmp_path: Path) -> None:
    other = torch.load(kept(run)[4], weights_only=True)
    for part in (other["state_dict"], other[WEIGHTS]):
        for name in [name for name in part if "decoder_layers.1" in name]:
            del part[name]
    AtomicCheckpointIO().save_checkpoint(other, tmp_path / "other.ckpt")
    for order in (1, -1):
        told = "weights of different models, which cannot be averaged"
        with pytest.raises(UserError, match=told):
            mean_weights([kept(run)[6], tmp_path / "other.ckpt"][::order])


def test_a_damaged_checkpoint_is_not_averaged(run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "step-0000004.ckpt"
    content = bytearray(kept(run)[4].read_bytes())
    weights = torch.load(kept(run)[4], weights_only=True)["state_dict"]
    first = weights["model.source_embedding.weight"].contiguous().numpy().tobytes()
    content[content.find(first) + 3] ^= 0x40  # the exponent of one weight
    for wrong in (bytes(content), b"no checkpoint"):
        damaged.write_bytes(wrong)
        with pytest.raises(UserError, match=r"step-0000004\.ckpt is damaged.*choose another"):
            mean_weights([kept(run)[6], damaged])
