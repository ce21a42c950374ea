"""A run in many parts is the run in one: losses, scores and weights, bit for bit."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import ended, forked
from safetensors.torch import load_file
from training_runs import before_step, column, signalled

from translate.cli.main import main
from translate.errors import UserError
from translate.inference import bundle
from translate.training import records
from translate.training.callbacks import DevTranslations
from translate.training.checkpoints import AtomicCheckpointIO, LastCheckpoint
from translate.training.run import Interrupted, train
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]


class Killed(BaseException):
    """As by SIGKILL."""


def kill(*_: object) -> None:
    raise Killed


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[str]]:
    """Step → every loss this process has seen at it, to the last bit."""
    seen: dict[int, set[str]] = {}
    original = TranslationTask.training_step

    def training_step(self: TranslationTask, batch: Any, batch_idx: int) -> Any:
        loss = original(self, batch, batch_idx)
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        ids = hash(tuple(batch.ids.tolist()))
        seen.setdefault(batch_idx, set()).add(f"{loss.item().hex()} {rate.hex()} {ids}")
        return loss

    monkeypatch.setattr(TranslationTask, "training_step", training_step)
    return seen


def assert_same(broken: Path, whole: Path) -> None:
    """All that two finished runs leave is the same, but for speeds and times."""
    assert records.read(broken)["steps"] == records.read(whole)["steps"]
    assert records.read(broken)["dev_bleu"] == records.read(whole)["dev_bleu"]
    for name in ("train/loss", "dev/loss", "dev/bleu"):
        assert column(broken, name) == column(whole, name)
    for name in ("last", "best"):
        saved, expected = (
            AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / f"{name}.ckpt")
            for run in (broken, whole)
        )
        assert saved["global_step"] == expected["global_step"], name
        for part in ("state_dict", "averaged_weights"):
            for key, tensor in expected.get(part, {}).items():
                assert torch.equal(saved[part][key], tensor), (name, part, key)
    saved, expected = (load_file(run / "bundle" / "model.safetensors") for run in (broken, whole))
    assert all(torch.equal(saved[key], expected[key]) for key in expected)
    cards = [json.loads((run / "bundle" / "config.json").read_text()) for run in (broken, whole)]
    assert cards[0]["extra"] == cards[1]["extra"]


def stop_in_validation(monkeypatch: pytest.MonkeyPatch, when: Callable[..., bool]) -> None:
    """The process signals itself while it translates the dev set."""
    original = DevTranslations._translate

    def translate(self: DevTranslations, *arguments: Any) -> float:
        if when(self):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    monkeypatch.setattr(DevTranslations, "_translate", translate)


@pytest.mark.parametrize("options", [("validate_every=1", "max_steps=2"), ("max_steps=1",)])
def test_a_kill_while_the_first_step_is_validated_ends_no_run(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """There is no step before, whose checkpoint a run could go on from: it begins anew."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = config(*(f"trainer.{option}" for option in (*options, "samples=0", "keep=2")))
    train(settings, whole)
    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_validation_end", kill)
        with pytest.raises(Killed):
            train(settings, broken)
    left = sorted(path.name for path in broken.rglob("*.ckpt"))
    assert (broken / "bundle").is_dir()
    assert left == ["best.ckpt", "step-0000001.ckpt"]
    train(settings, broken)
    assert_same(broken, whole)


def test_a_death_right_after_a_save_loses_no_report(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    save = AtomicCheckpointIO.save_checkpoint

    def save_and_die(
        self: AtomicCheckpointIO, checkpoint: dict[str, Any], path: str, **options: Any
    ) -> None:
        save(self, checkpoint, path, **options)
        if checkpoint["global_step"] == 2 and Path(path).name == "last.ckpt":
            raise RuntimeError("dead")

    options = ("trainer.save_every=2", "trainer.max_steps=3")
    train(config(*options), whole)
    with monkeypatch.context() as patch:
        patch.setattr(AtomicCheckpointIO, "save_checkpoint", save_and_die)
        with pytest.raises(RuntimeError, match="dead"):
            train(config(*options), broken)
    train(config(*options), broken)
    assert_same(broken, whole)


def test_a_signal_in_a_validation_waits_for_its_end_and_no_longer(
    config: Config, tmp_path: Path, losses: dict[int, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config(), whole)
    with monkeypatch.context() as patch:
        stop_in_validation(patch, lambda dev: True)
        with pytest.raises(Interrupted, match="everything is saved") as stopped:
            train(config(), broken)
    assert stopped.value.exit_code == 143
    saved = AtomicCheckpointIO().load_checkpoint(broken / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 6
    assert column(broken, "dev/bleu")
    train(config(), broken)
    assert_same(broken, whole)
    assert {len(found) for found in losses.values()} == {1}


@pytest.mark.parametrize("schedule", [
    {"kind": "constant", "warmup_steps": 1}, {"kind": "plateau", "factor": 0.1, "patience": 5},
])  # fmt: skip
def test_a_run_goes_on_with_other_batches_and_another_rate_and_says_so(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, schedule: dict[str, Any]
) -> None:
    begun = config("trainer.max_steps=3", "trainer.validate_every=3") | {"schedule": schedule}
    train(begun, tmp_path)
    rates: list[float] = []
    now = config("trainer.max_steps=6", "trainer.validate_every=3", "trainer.accumulate=2",
                 "optimizer.learning_rate=0.0001", "data.tokens_per_batch=200",
                 "trainer.precision=bf16-mixed") | {"schedule": schedule}  # fmt: skip

    def note(task: TranslationTask, batch: Any, index: int) -> None:
        rates.append(task.trainer.optimizers[0].param_groups[0]["lr"])

    with before_step(note):
        train(now, tmp_path)
    assert rates == pytest.approx([0.0001] * len(rates))
    assert len(rates) > 3  # two batches a step
    assert records.read(tmp_path)["steps"] == 6
    assert "goes on otherwise than it began (data.tokens_per_batch: 300 → 200; " in caplog.text
    caplog.clear()
    train(now | {"trainer": now["trainer"] | {"max_steps": 7}}, tmp_path)  # as it went on
    assert "otherwise" not in caplog.text


def test_a_signal_between_validations_adds_none(config: Config, tmp_path: Path) -> None:
    with signalled(2, signal.SIGTERM), pytest.raises(Interrupted):
        train(config(), tmp_path / "run")
    assert not column(tmp_path / "run", "dev/bleu")
    assert not (tmp_path / "run" / "bundle").exists()


def test_a_signal_at_the_end_ends_what_comes_after_the_run(config: Config, tmp_path: Path) -> None:
    short = config("trainer.max_steps=2", "trainer.validate_every=2")
    with (
        signalled(1, signal.SIGTERM),
        pytest.raises(Interrupted, match="run is finished") as stopped,
    ):
        train(short, tmp_path / "run")
    assert stopped.value.exit_code == 143
    assert records.run_status(tmp_path / "run") == "finished"
    assert [*column(tmp_path / "run", "dev/bleu")] == [1]


def test_a_terminal_that_closes_leaves_a_run_saved(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"

    def trained() -> int:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests are started by
        screen, terminal = pty.openpty()
        os.login_tty(terminal)
        sys.stderr = os.fdopen(2, "w", buffering=1)

        def close(task: TranslationTask, batch: Any, step: int) -> None:
            if step == 2:
                os.close(screen)

        with before_step(close):
            return main(["train", f"run={run}", *overrides()])

    assert ended(forked(trained)) == 129
    saved = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 3


def test_under_nohup_a_run_outlives_its_terminal(config: Config, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signalled(1, signal.SIGHUP):
            train(config("trainer.max_steps=2", "trainer.validate_every=2"), tmp_path / "run")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert records.run_status(tmp_path / "run") == "finished"


FOREIGN: dict[str, Any] = {
    "global_step": "x", "TranslationData": 7, "callbacks": [], "loops": {}, "state_dict": [1],
    "optimizer_states": 3, "lr_schedulers": None,
}  # fmt: skip


def test_a_checkpoint_of_something_else_is_refused_in_a_line(
    config: Config, tmp_path: Path
) -> None:
    run, io = tmp_path / "run", AtomicCheckpointIO()
    train(config("trainer.max_steps=2", "trainer.validate_every=2"), run)
    last = run / "checkpoints" / "last.ckpt"
    saved, refused, said = io.load_checkpoint(last), set[str](), list[str]()
    longer = config("trainer.max_epochs=9", "trainer.max_steps=4", "trainer.validate_every=2")
    for key, value in FOREIGN.items():
        for forged in (saved | {key: value}, {k: v for k, v in saved.items() if k != key}):
            io.save_checkpoint(forged, last)
            try:
                train(longer, run)  # what callbacks remember may be missing
            except UserError as error:
                refused.add(key)
                said.append(str(error))
    assert refused >= FOREIGN.keys() - {"callbacks"}
    assert all(re.fullmatch(r".*last\.ckpt is not a checkpoint of .*", line) for line in said)


def test_a_signal_that_slurm_is_asked_for_stops_a_run_as_any_other_does(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"JOB_ID": 1234567, "JOB_NAME": "train", "NTASKS": 1, "PROCID": 0,
                        "LOCALID": 0, "NODEID": 0}.items():  # fmt: skip
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    run = tmp_path / "run"
    with (
        signalled(2, signal.SIGUSR1),
        pytest.raises(Interrupted, match="stopped by SIGUSR1, everything is saved") as stopped,
    ):
        train(config(), run)
    assert stopped.value.exit_code == 138
    assert [path.name for path in run.rglob("*.ckpt")] == ["last.ckpt"]
    saved = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 3


def test_a_second_signal_does_not_wait(overrides: Callable[..., list[str]], tmp_path: Path) -> None:
    run = tmp_path / "run"

    def twice() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with signalled(2, signal.SIGINT), signalled(2, signal.SIGINT):
            return main(["train", f"run={run}", *overrides()])

    with (tmp_path / "said").open("w") as said:
        assert ended(forked(twice, said.fileno())) == 130
    *_, last = (tmp_path / "said").read_text().splitlines()
    assert last == "translate: stopped by SIGINT; to go on or start again, give the same command"
    assert [*column(run, "train/loss")] == [0, 1]
    assert not list(run.rglob("*.ckpt"))


IDLE = (  # no validation is better than the first
    "optimizer.learning_rate=1e-12",
)  # fmt: skip


def test_patience_that_is_spent_stays_spent(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, once = tmp_path / "run", config(*IDLE, "trainer.validate_every=1", "trainer.patience=1")
    with monkeypatch.context() as patch:
        stop_in_validation(patch, lambda dev: dev.best >= 0)
        with pytest.raises(Interrupted, match="run is finished"):
            train(once, run)
    assert records.read(run)["steps"] == 2
    train(once, run)  # as after a kill before it was noted as finished
    assert records.read(run)["steps"] == 2
    assert records.run_status(run) == "finished"


def test_a_validation_that_is_due_where_time_is_out_is_not_skipped(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    settings = config(*IDLE, "trainer.validate_every=2", "trainer.save_every=1")
    limited = settings | {"trainer": settings["trainer"] | {"max_minutes": 60.0}}
    late: list[float] = []  # seconds, from the second step on
    with monkeypatch.context() as patch:
        patch.setattr(DevTranslations, "_translate", kill)
        patch.setattr(time, "monotonic", lambda clock=time.monotonic: clock() + sum(late))
        with (
            before_step(lambda task, batch, step: late.extend([1e6] if step == 1 else [])),
            pytest.raises(Killed),
        ):
            train(limited, run)
    train(settings, run)
    assert [*column(run, "dev/bleu")] == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("ends", ["out of time", "at its last step"])
def test_the_validation_at_the_end_of_a_call_lowers_no_rate_and_spends_no_patience(
    config: Config, tmp_path: Path, ends: str
) -> None:
    minutes = ["trainer.max_minutes=1e-5"] if ends == "out of time" else []
    for call in range(1, 4):
        last = 100 if minutes else call
        short = config("trainer.validate_every=50", f"trainer.max_steps={last}", *minutes,
                       "trainer.patience=1",
                       "optimizer.learning_rate=1e-6")  # fmt: skip
        short["schedule"] = {"kind": "plateau", "factor": 0.1, "patience": 1}
        train(short, tmp_path / "run")
    saved = AtomicCheckpointIO().load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 3
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == 1e-6
    assert [*column(tmp_path / "run", "dev/bleu")] == [0, 1, 2]
    assert records.run_status(tmp_path / "run") == ("unfinished" if minutes else "finished")


def test_a_signal_to_all_processes_leaves_the_workers_their_last_batch(
    config: Config, tmp_path: Path
) -> None:
    """Ctrl-C in a terminal and a cluster's SIGTERM reach the workers too."""
    run = tmp_path / "run"

    def signal_all(task: TranslationTask, batch: Any, step: int) -> None:
        if step == 2:
            os.killpg(0, signal.SIGINT)

    def trained() -> int:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with before_step(signal_all), pytest.raises(Interrupted) as stopped:
            train(config("data.workers=2"), run)
        return stopped.value.exit_code

    assert ended(forked(trained)) == 130
    saved = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == 3


def killed_at_random(config: dict[str, Any], run: Path, *, seconds: float) -> bool:
    """Train in a child of this process and kill -9 it after so long; whether it had finished."""
    child = forked(partial(train, config, run))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills_lose_no_checkpoint_and_change_no_bit(
    config: Config, tmp_path: Path
) -> None:
    from random import Random

    random, kills, runs, found = Random(9), 0, 0, 0
    settings = config("trainer.max_steps=40", "trainer.save_every=4", "trainer.validate_every=10")
    whole = tmp_path / "whole"
    start = time.monotonic()
    train(settings, whole)
    longest = time.monotonic() - start
    while kills < int(os.environ.get("SOAK_KILLS", "200")):
        run, reached = tmp_path / f"run{runs}", 0
        while not killed_at_random(settings, run, seconds=random.uniform(0.2, longest / 2)):
            kills += 1
            for path in (run / "checkpoints").glob("*.ckpt"):
                AtomicCheckpointIO().load_checkpoint(path)
            if (model := bundle.located(run)) is not None:
                bundle.load(model)
            last = run / "checkpoints" / "last.ckpt"
            if reached or last.exists():
                step = AtomicCheckpointIO().load_checkpoint(last)["global_step"]
                assert step >= reached
                reached, found = step, found + 1
        assert_same(run, whole)
        runs += 1
    record(f"kill -9 at random: {kills} kills, {found} checkpoints found whole, {runs} runs equal")


def record(line: str) -> None:
    with Path(os.environ.get("SOAK_FIGURES", os.devnull)).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("model", ["transformer", "rnn"])
def test_stopped_at_every_step_of_three_epochs(
    config: Config, tmp_path: Path, losses: dict[int, set[str]], model: str, workers: int
) -> None:
    """One run, stopped after each of its steps in turn, against one that never stopped."""
    options = ["trainer.max_epochs=3", "trainer.max_steps=null", f"data.workers={workers}"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config(*options, model=model), whole)
    total = len(losses)
    assert total == records.read(whole)["steps"]
    for step in range(total - 1):
        with signalled(step, signal.SIGTERM), pytest.raises(Interrupted):
            train(config(*options, model=model), broken)
    train(config(*options, model=model), broken)
    assert {len(found) for found in losses.values()} == {1}
    assert_same(broken, whole)
    record(f"stopped after each of {total} steps, {model}, {workers} workers: 0 losses differ")
