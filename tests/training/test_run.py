"""Whole runs on the toy grammar: finished, interrupted, resumed, refused."""

from __future__ import annotations

import json
import logging
import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import before_step, column, numbers, signalled

import translate
from translate.data.corpus import prepare
from translate.errors import UserError
from translate.training import callbacks, records
from translate.training import run as run_module
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.objectives import CrossEntropy, RDrop
from translate.training.resources import NONE
from translate.training.run import Interrupted, train
from translate.training.settings import TrainingConfig
from translate.training.step import RunningMeans, TranslationTask

Config = Callable[..., dict[str, Any]]
REGULARISED = ("trainer.r_drop=2.0", "trainer.word_dropout=0.2")


def losses(run: Path) -> dict[int, str]:
    return column(run, "train/loss")


def weights(run: Path) -> dict[str, Any]:
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return state["state_dict"] | {f"ema.{k}": v for k, v in state["averaged_weights"].items()}


@pytest.mark.usefixtures("pictures")
def test_a_finished_run_has_everything_and_translates(config: Config, tmp_path: Path) -> None:
    run, listening = tmp_path / "run", list(logging.getLogger().handlers)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    best = train(config("trainer.samples=1"), run)
    assert logging.getLogger().handlers == listening  # what comes after is no part of its log
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert records.run_status(run) == "finished"
    assert records.read(run)["dev_bleu"] == best
    assert {path.name for path in run.iterdir()} >= {
        "config.yaml", "metrics.csv", "train.log", "checkpoints", "bundle", "plots",
    }  # fmt: skip
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    assert (run / "plots" / "learning_curves.png").stat().st_size > 5000
    assert (run / "plots" / "attention-000012.png").exists()
    assert sorted(losses(run)) == list(range(12))
    told = (run / "train.log").read_text()
    assert "dev BLEU" in told
    assert json.loads((run / "provenance.json").read_text())["steps"] == 12
    translator = translate.load(run, device="cpu")
    assert len(translator.translate(["der Hund schläft .", ""])) == 2
    saved = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    averaged, trained = saved["averaged_weights"], saved["state_dict"]
    assert averaged.keys() == trained.keys()
    for name, weight in translator.model.state_dict().items():
        assert torch.equal(weight, averaged[f"model.{name}"])
        assert not torch.equal(weight, trained[f"model.{name}"])


@pytest.mark.parametrize(
    ("model", "options"), [("transformer", REGULARISED), ("rnn", ())], ids=["transformer", "rnn"]
)
def test_interrupted_twice_equals_never_interrupted(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    options: tuple[str, ...],
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = config(*options, "trainer.max_steps=8", "trainer.validate_every=4", model=model)
    train(settings, whole)
    for step, number, code in ((1, signal.SIGINT, 130), (6, signal.SIGTERM, 143)):
        with (
            signalled(step, number),
            pytest.raises(Interrupted, match="translate train run=") as stopped,
        ):
            train(settings, broken)
        assert stopped.value.exit_code == code
        assert records.run_status(broken) == "unfinished"
        assert max(losses(broken)) == step
    train(settings, broken)
    assert losses(broken) == losses(whole)
    expected, actual = weights(whole), weights(broken)
    assert expected.keys() == actual.keys()
    different = [name for name in expected if not torch.equal(expected[name], actual[name])]
    assert different == []


def test_a_validation_tells_its_loss_and_whether_it_is_the_best(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([4.0, 3.0, 4.0])
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: next(scores))
    run, short = tmp_path / "run", ("trainer.max_steps=3", "trainer.validate_every=1")
    train(config(*short, "trainer.validation_sentences=8"), run)
    told = re.findall(
        r"step (\d): dev BLEU \d\.00 on the first 8 of 20 sentences \(\d+ s\), "
        r"(.*); dev loss (.*), perplexity (.*)",
        (run / "train.log").read_text(),
    )
    judged = ["the best so far", "best 4.00", "the best so far"]
    assert [line[:2] for line in told] == [*zip("123", judged, strict=True)]
    logged = numbers(run, "dev/loss")
    assert [float(line[2]) for line in told] == pytest.approx(logged, abs=6e-4)
    assert [float(line[3]) for line in told] == pytest.approx([*map(math.exp, logged)], rel=1e-3)


def test_the_last_steps_are_reported_too(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(config("trainer.log_every=3", "trainer.max_steps=5"), run)
    assert sorted(losses(run)) == [2, 4]
    assert re.search(r"step 5/5  loss .*  0 s left", (run / "train.log").read_text())


# what changes the model of `MODELS` that is named
KINDS = {
    "sliding_window": ("transformer", "model.self_attention=sliding_window", "model.window=4"),
    "strided": ("transformer", "model.self_attention=strided", "model.stride=3"),
    "fixed": ("transformer", "model.self_attention=fixed", "model.stride=3", "model.summary=1"),
    "linear": ("transformer", "model.self_attention=linear"),
    "fast_weights": ("transformer", "model.self_attention=fast_weights"),
    "relative": ("transformer", "model.positions=relative"),
    "alibi": ("transformer", "model.positions=alibi"),
    "learned": ("transformer", "model.positions=learned", "model.max_positions=60"),
    "none": ("transformer", "model.positions=none"),
    "rms": ("transformer", "model.normalization=rms"),
    "rotary": ("transformer", "model.positions=rotary"),
    "grouped": ("transformer", "model.num_kv_heads=2"),
    "values": ("transformer", "model.d_v=6"),
    "convolutional": ("convolutional",),
    "local_m": ("rnn", "model.attention=local_m", "model.local_score=additive"),
    "local_p": ("rnn", "model.attention=local_p", "model.local_score=additive"),
    "no_attention": ("rnn", "model.attention=none"),
    "dot": ("rnn", "model.attention=dot", "model.query=current"),
    "projected": ("rnn", "model.attention=projected"),
    "coverage": ("rnn", "model.coverage=linguistic"),
}


@pytest.mark.checked
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_is_bundled_and_translates(
    config: Config, tmp_path: Path, kind: str
) -> None:
    model, *changes = KINDS[kind]
    run, steps = tmp_path / "run", 3
    short = (f"trainer.max_steps={steps}", f"trainer.validate_every={steps}",
             "trainer.averaging.kind=none", "schedule.warmup_steps=1")  # fmt: skip
    train(config(*changes, *short, model=model), run)
    assert sorted(losses(run)) == list(range(steps))
    trained = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]
    translator = translate.load(run, device="cpu")
    for name, parameter in translator.model.state_dict().items():  # of what was trained
        torch.testing.assert_close(parameter, trained[f"model.{name}"], rtol=0, atol=0)
    options = {key.removeprefix("model."): value for key, value in
               (change.split("=") for change in changes)}  # fmt: skip
    stored = json.loads((run / "bundle" / "config.json").read_text())["options"]
    assert {key: str(stored[key]) for key in options} == options
    assert len(translator.translate(["der Hund schläft .", ""])) == 2


@pytest.mark.parametrize("model", ["rnn", "transformer", "convolutional"])
def test_eight_sentences_are_learnt(config: Config, tmp_path: Path, model: str) -> None:
    short = ("trainer.max_steps=25", "trainer.validate_every=25", "trainer.save_every=25",
             "trainer.averaging.kind=none", "trainer.label_smoothing=0.0", "model.dropout=0.0",
             "data.train=8", "schedule=constant", "optimizer.learning_rate=0.03")  # fmt: skip
    train(config(*short, model=model), tmp_path / "run")
    falling = [float(loss) for _, loss in sorted(losses(tmp_path / "run").items())]
    assert falling[-1] < falling[0] / 2


def test_a_loss_that_is_not_finite_stops_the_run(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TranslationTask.losses

    def poisoned(self: TranslationTask, batch: Any, objective: Any) -> Any:
        sums = original(self, batch, objective)
        return sums._replace(
            smoothed=sums.smoothed * (float("nan") if self.global_step == 7 else 1)
        )

    monkeypatch.setattr(TranslationTask, "losses", poisoned)
    with pytest.raises(UserError, match=r"loss is not finite at step 8 .*optimizer\.learning_rate"):
        train(config(), tmp_path / "run")
    *_, end = (tmp_path / "run" / "train.log").read_text().splitlines()
    assert "ended: the loss is not finite at step 8" in end
    record = json.loads((tmp_path / "run" / "not_finite.json").read_text())
    assert record["step"] == 8
    assert 0 < len(set(record["pairs"])) == len(record["pairs"]) <= 300
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 6  # after the validation
    assert all(value.isfinite().all() for value in saved["state_dict"].values())


@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_a_gradient_that_is_not_finite_stops_the_run_at_its_own_step(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: float
) -> None:
    """Its loss is finite; that of the next step, which is innocent, no longer."""
    taken: list[list[int]] = []

    def poisoned(self: TranslationTask, *_: Any) -> None:
        if self.global_step == 7:
            self.gradients()[0].view(-1)[0] = float("inf")

    monkeypatch.setattr(TranslationTask, "on_before_optimizer_step", poisoned)
    run = tmp_path / "run"
    with (
        before_step(lambda task, batch, step: taken.append(batch.ids.tolist())),
        pytest.raises(UserError, match=r"the gradient is not finite at step 8 \(its training"),
    ):
        train(config(f"trainer.gradient_clip={clip}"), run)
    record = json.loads((run / "not_finite.json").read_text())
    assert (record["step"], record["gradient"], record["pairs"]) == (8, "inf", taken[7])
    assert len(record["source"]) == len(record["target"]) == len(record["pairs"])
    assert all(float(norm) > 0 for norm in column(run, "train/gradient_norm").values())


FULL = {
    "the GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "this machine": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 B"),
}


@pytest.mark.parametrize("device", FULL)
def test_a_memory_that_is_full_is_told_with_what_to_do(
    config: Config, tmp_path: Path, device: str
) -> None:
    def full(task: TranslationTask, batch: Any, step: int) -> None:
        if step == 2:
            raise FULL[device]

    message = rf"{device} ran out of memory at step 3, with data\.tokens_per_batch = 300"
    with before_step(full), pytest.raises(UserError, match=message):
        train(config(), tmp_path / "run")


def test_epochs_are_counted_in_steps(config: Config, tmp_path: Path) -> None:
    seen: list[int] = []
    epochs = ("trainer.max_epochs=2", "trainer.max_steps=null", "trainer.validate_every=1000")
    with before_step(lambda task, batch, step: seen.extend(batch.ids.tolist())):
        train(config(*epochs, "data.train=80"), tmp_path / "run")
    assert sorted(seen) == sorted([*range(80)] * 2)


def test_epochs_without_the_batches_of_a_step_are_refused(config: Config, tmp_path: Path) -> None:
    epochs = ("trainer.max_epochs=2", "trainer.max_steps=null", "trainer.accumulate=1000")
    with pytest.raises(UserError, match=r"a step of 1,000 batches .*more than trainer.max_epochs"):
        train(config(*epochs), tmp_path / "run")


def test_an_attempt_without_a_checkpoint_leaves_nothing_to_the_next(
    config: Config, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    broken = ("optimizer.learning_rate=1e30", "trainer.gradient_clip=0", "schedule.warmup_steps=1")
    with pytest.raises(UserError, match=r"not finite") as told:
        train(config("trainer.log_every=1", *broken), run)
    assert "the last checkpoint is intact" not in str(told.value)
    assert losses(run)
    train(config("trainer.max_steps=3", "trainer.log_every=3"), run)
    assert list(losses(run)) == [2]
    assert not (run / "not_finite.json").exists()


@pytest.mark.usefixtures("pictures")
def test_tensorboard_shows_losses_samples_and_attention(config: Config, tmp_path: Path) -> None:
    shown = ("trainer.tensorboard=true", "trainer.samples=3")
    train(config(*shown, "trainer.max_steps=2"), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "dev/loss", "dev/bleu", "learning_rate"} <= set(events.Tags()["scalars"])
    assert events.Tags()["images"] == ["dev/attention"]
    (samples,) = events.Tensors("dev/samples/text_summary")
    (text,) = samples.tensor_proto.string_val
    assert text.decode().count("hypothesis") == 3
    chosen = yaml.safe_load((tmp_path / "run" / "tensorboard" / "hparams.yaml").read_text())
    assert (chosen["model.d_model"], chosen["optimizer.learning_rate"]) == (16, 0.001)


def test_a_plateau_of_dev_bleu_lowers_the_learning_rate(config: Config, tmp_path: Path) -> None:
    # next to nothing is learned: BLEU never rises above that of the first of three validations
    tiny = config("optimizer.learning_rate=1e-6", "trainer.validate_every=1",
                  "trainer.max_steps=3")  # fmt: skip
    tiny["schedule"] = {"kind": "plateau", "factor": 0.1, "patience": 1}
    train(tiny, tmp_path / "run")
    rates = numbers(tmp_path / "run", "learning_rate")
    assert rates == pytest.approx([1e-6] * 2 + [1e-7])


@pytest.mark.parametrize(
    "early", ["trainer.max_minutes=0.0001", "trainer.patience=1"], ids=["time", "patience"]
)
def test_a_run_that_ends_early_keeps_its_last_step(
    config: Config, tmp_path: Path, early: str
) -> None:
    run = tmp_path / "run"
    # a learning rate of next to nothing: BLEU does not rise, patience ends
    options = ("optimizer.learning_rate=1e-12", "trainer.validate_every=2", "trainer.max_steps=50")
    train(config(*options, early), run)
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert 0 < saved["global_step"] == records.read(run)["steps"] < 50
    assert saved["global_step"] == max(losses(run)) + 1
    out_of_time = "max_minutes" in early  # which goes on by the same command
    assert records.run_status(run) == ("unfinished" if out_of_time else "finished")
    train(config(*options, "trainer.max_steps=5"), run)
    assert sorted(losses(run)) == list(range(5))


def test_time_that_runs_out_in_a_validation_asks_for_no_other(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = time.monotonic() + 1000
    validated = []

    def bleu(*_: Any, **__: Any) -> float:
        validated.append(1)
        monkeypatch.setattr(time, "monotonic", lambda: late)
        return 1.0

    monkeypatch.setattr(callbacks, "bleu", bleu)
    run = tmp_path / "run"
    train(config("trainer.max_minutes=15", "trainer.validate_every=2"), run)
    assert records.read(run)["steps"] == 2
    assert records.run_status(run) == "unfinished"
    assert len(validated) == 1


def test_fewer_steps_than_were_meant_are_recorded_where_they_are_done(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, meant = tmp_path / "run", config("trainer.max_steps=4")
    with signalled(1, signal.SIGTERM), pytest.raises(Interrupted):
        train(meant, run)
    train(config("trainer.max_steps=2"), run)
    assert records.run_status(run) == "finished"
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_steps"] == 2
    train(meant, run)
    assert sorted(losses(run)) == list(range(4))


def test_each_call_that_goes_on_is_recorded(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for steps in (1, 2, 2, 3):
        monkeypatch.setattr(sys, "argv", ["translate", "train", f"trainer.max_steps={steps}"])
        train(config(f"trainer.max_steps={steps}"), run)
    record = records.read(run)
    assert record["command"][-1] == "trainer.max_steps=1"
    told = [(call["step"], call["command"][-1]) for call in record["calls"]]
    assert told == [(1, "trainer.max_steps=2"), (2, "trainer.max_steps=3")]
    assert record["calls"][0]["versions"] == record["versions"]


def test_what_a_run_has_used_is_recorded(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several calls as in one: tokens of the steps that count, and the time that they took."""
    read = {"source_tokens": 0, "target_tokens": 0}

    def count(task: TranslationTask, batch: Any, step: int) -> None:
        for side in read:
            read[side] += getattr(batch, side)

    run, seconds = tmp_path / "run", 0.0
    for steps in (1, 3):
        with before_step(count):
            train(config(f"trainer.max_steps={steps}"), run)
        record = records.read(run)
        assert {side: record[side] for side in read} == read
        assert record["seconds"] > seconds
        assert record["ended"] >= record["started"]
        seconds = record["seconds"]
    assert record["best_step"] in (1, 3)
    assert record["parameters"] == 25_088
    assert record["accelerator"] == ("gpu" if torch.cuda.is_available() else "cpu")
    assert record["threads"] == torch.get_num_threads()
    assert record["precision"] == "32-true"


def test_threads_are_those_of_a_run_alone(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, during = torch.get_num_threads(), []

    def no_text(*_: Any, **__: Any) -> None:
        during.append(torch.get_num_threads())
        raise UserError("no text")

    monkeypatch.setattr("translate.training.run.prepare", no_text)
    with pytest.raises(UserError, match="no text"):
        train(config(f"trainer.threads={before + 1}"), tmp_path / "run")
    assert during == [before + 1]
    assert torch.get_num_threads() == before


def test_the_best_validation_is_kept_and_patience_counts_from_it(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([10.0, 30.0, 20.0, 25.0, 40.0])
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: next(scores))
    run = tmp_path / "run"
    settings = config("trainer.validate_every=1", "trainer.patience=2")  # fmt: skip
    assert train(settings, run) == 30
    assert records.read(run)["steps"] == 4
    best = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 2
    extra = json.loads((run / "bundle" / "config.json").read_text())["extra"]
    assert (extra["dev_bleu"], extra["step"]) == (30, 2)


def test_more_patience_lets_a_run_go_on(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    options = ("optimizer.learning_rate=1e-12", "trainer.validate_every=1")
    remedy = "trainer.patience=null or a larger number"
    train(config(*options, "trainer.patience=1"), run)
    assert records.read(run)["steps"] == 2
    assert "out of patience at step 2/12: best dev BLEU" in caplog.text
    assert remedy not in caplog.text
    train(config(*options, "trainer.patience=1", "trainer.max_steps=24"), run)
    assert records.read(run)["steps"] == 2
    assert f"out of patience after step 2: to continue training, give {remedy}" in caplog.text
    train(config(*options, "trainer.patience=3"), run)
    assert records.read(run)["steps"] == 4
    assert "out of patience at step 4/12" in caplog.text
    assert caplog.text.count(remedy) == 1


def test_a_reported_loss_is_the_mean_over_the_tokens_since_the_last_report(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("trainer.accumulate=2", "trainer.log_every=3", "trainer.max_steps=6",
                      "trainer.validate_every=4")  # fmt: skip
    whole, broken, seen = tmp_path / "whole", tmp_path / "broken", []
    original = RunningMeans.add

    def add(self: RunningMeans, name: str, total: torch.Tensor, count: torch.Tensor) -> Any:
        if name == "train/loss":
            seen.append((total.item(), count.item()))
        return original(self, name, total, count)

    with monkeypatch.context() as patch:
        patch.setattr(RunningMeans, "add", add)
        train(settings, whole)
    batches = seen[:6], seen[6:]
    means = [sum(total for total, _ in b) / sum(count for _, count in b) for b in batches]
    assert list(map(float, losses(whole).values())) == pytest.approx(means, rel=1e-5)
    with signalled(4, signal.SIGTERM), pytest.raises(Interrupted):
        train(settings, broken)
    train(settings, broken)
    assert losses(broken) == losses(whole)
    expected, found = weights(whole), weights(broken)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_epochs_count_what_is_left_for_another_number_of_processes(
    config: Config, tmp_path: Path
) -> None:
    """No further than the run goes."""
    drawn: list[int] = []

    def epoch(number: int) -> Iterator[list[int]]:
        for _ in range(12):
            drawn.append(number)
            yield [0]

    data, last = SimpleNamespace(batches=lambda: SimpleNamespace(epoch=epoch)), tmp_path / "last"

    def steps(epochs: int, most: int | None = None) -> int:
        drawn.clear()
        ends = (f"trainer.max_epochs={epochs}", f"trainer.max_steps={most or 'null'}")
        return run_module.total_steps_of(TrainingConfig.model_validate(config(*ends)), data, last)

    assert steps(2) == 24
    assert steps(2, 20) == 20
    assert steps(2, 30) == 24
    assert steps(1000, 20) == 20
    assert len(drawn) == 20
    state: dict[str, Any] = {"batches_done": 16}  # of two processes
    AtomicCheckpointIO().save_checkpoint({"global_step": 8, "SimpleNamespace": state}, last)
    assert steps(2) == 16
    state = {"batches_done": 30, "epoch_begun": (2, 24)}
    AtomicCheckpointIO().save_checkpoint({"global_step": 30, "SimpleNamespace": state}, last)
    assert steps(4) == 48
    assert set(drawn) == {2, 3}
    assert steps(4, 40) == 40
    assert steps(1) == 12


def test_a_run_that_goes_on_for_longer_takes_no_step_at_the_rate_of_its_end(
    config: Config, tmp_path: Path
) -> None:
    """Which would be 0: a batch without a lesson. Reported are rates that steps were taken with."""
    options = ("schedule=linear", "schedule.warmup_steps=2", "schedule.final=0",
               "optimizer.learning_rate=1e-3", "trainer.validate_every=8")  # fmt: skip
    longer = tmp_path / "longer"
    for steps in (4, 8):
        train(config(*options, f"trainer.max_steps={steps}"), longer)
    rates = numbers(longer, "learning_rate")
    assert rates[:4] == pytest.approx([0.5e-3, 1e-3, 1e-3, 0.5e-3])
    assert rates[4:] == pytest.approx([1e-3 * (8 - step) / 6 for step in (4, 5, 6, 7)], rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "workers"),
    [
        ([], 0),
        (["tokenizer=bpe", "tokenizer.sampling.dropout=0.1"], 1),
        (["trainer.guided_alignment.weight=0.1"], 1),
        (["data.workers=3"], 3),
    ],
)
def test_a_process_makes_batches_only_where_it_pays(
    config: Config, monkeypatch: pytest.MonkeyPatch, asked: list[str], workers: int
) -> None:
    chosen = config("data.workers=null", "trainer.accelerator=cpu", *asked)
    given: dict[str, Any] = {}
    monkeypatch.setattr(run_module, "TranslationData", lambda _, **options: given.update(options))
    corpus: Any = object()
    run_module.new_data(TrainingConfig.model_validate(chosen), corpus)
    assert given["workers"] == workers


@pytest.mark.parametrize(
    ("weight", "objective"), [(0.0, CrossEntropy(0.3)), (2.0, RDrop(2.0, CrossEntropy(0.3)))]
)
def test_a_step_has_the_objective_and_the_words_that_are_asked_for(
    config: Config, monkeypatch: pytest.MonkeyPatch, weight: float, objective: CrossEntropy | RDrop
) -> None:
    chosen = config(f"trainer.r_drop={weight}", "trainer.label_smoothing=0.3",
                    "trainer.word_dropout=0.5")  # fmt: skip
    nodes = TrainingConfig.model_validate(chosen)
    corpus = prepare(nodes.data, nodes.tokenizer, cache=Path(nodes.cache))
    model = run_module.new_model(nodes, corpus)
    task = run_module.new_task(nodes, model, corpus, compiler=None, packed_from=NONE, total_steps=1)
    data = run_module.new_data(nodes, corpus)
    data.tokens_per_batch = 300
    batch = next(iter(data.train_dataloader()))
    read: list[tuple[Any, Any]] = []
    monkeypatch.setattr(task, "losses", lambda *given: read.append(given))
    task.training_losses(batch)
    ((dropped, by),) = read
    assert by == objective
    first, *second = dropped.source.chunk(objective.passes)
    assert len(second) == objective.passes - 1
    for words in (batch.source, *second):  # others are left out each time
        assert not torch.equal(first, words)


@pytest.mark.parametrize("norm", [0.01, 0.0])
def test_gradients_are_clipped_to_the_norm_that_is_asked_for(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, norm: float
) -> None:
    original = TranslationTask.configure_gradient_clipping
    taken: list[float] = []  # by the optimizer

    def watched(self: TranslationTask, *given: Any, **options: Any) -> None:
        original(self, *given, **options)
        taken.append(float(self.gradient_norm()))

    monkeypatch.setattr(TranslationTask, "configure_gradient_clipping", watched)
    train(config(f"trainer.gradient_clip={norm}", "trainer.max_steps=2"), tmp_path / "run")
    before = numbers(tmp_path / "run", "train/gradient_norm")
    assert min(before) > 0.01
    assert taken == pytest.approx([norm] * 2 if norm else before, rel=1e-3)


def test_pairs_that_are_all_too_long_are_told_with_the_number_to_type(
    config: Config, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"all 300 training pairs are longer .* set data.max_length=\d"
    ):
        train(config("data.max_length=1"), tmp_path)
