"""Dev translations, reports, and numbers that are not finite."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from torch import nn

from translate.cli.main import main
from translate.errors import UserError
from translate.evaluation import metrics
from translate.inference import bundle
from translate.training import callbacks, records
from translate.training.callbacks import NEVER, DevTranslations, Reports, StopWhenNotFinite, lasting
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.run import train
from translate.training.step import RunningMeans, TranslationTask

Config = Callable[..., dict[str, Any]]

CHINESE = ("他在北京买了一本好书。 A new book!", "他在北京买了一本新书。 A new book.")
THAI = ("ฉันอยู่ที่กรุงเทพมหานคร", "ฉันอยู่ที่กรุงเทพ")
GERMAN = ("Er kauft in Peking (北京) ein Buch!", "Er kaufte in Peking (北京) ein Buch.")


def judge(folder: Path, references: list[list[str]], language: str = "de") -> DevTranslations:
    rows = pa.table({"source": ["a new book"] * len(references), "references": references})
    corpus: Any = SimpleNamespace(dev=rows, target_language=language, tokenizers=None)
    config: Any = SimpleNamespace(trainer=SimpleNamespace(validation_sentences=9, samples=0))
    unused: Any = None
    return DevTranslations(config, corpus, folder, search=unused, tokens_per_batch=8)


@pytest.mark.parametrize(
    ("language", "tokenize", "texts"),
    [("zh", "zh", CHINESE), ("th", "char", THAI), ("de", "13a", GERMAN)],
)
def test_dev_bleu_goes_by_the_target_language(
    language: str,
    tokenize: str,
    texts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference, said = texts
    saved: list[int] = []
    dev = judge(tmp_path, [[reference]], language)
    stand_in = SimpleNamespace(translate=lambda sources: [said])
    monkeypatch.setattr(callbacks, "Translator", lambda *args, **kwargs: stand_in)
    monkeypatch.setattr(dev, "_save_bundle", lambda model, step: saved.append(step))
    trainer: Any = SimpleNamespace(global_step=7)
    task: Any = SimpleNamespace(evaluated=None, device="cpu")
    expected = BLEU(tokenize=tokenize).corpus_score([said], [dev.references[0]]).score
    with caplog.at_level(logging.INFO):
        assert dev._translate(trainer, task, 2.0) == pytest.approx(expected)
    assert " on 1 sentence (" in caplog.text
    assert saved == [7]


def test_of_models_that_score_the_same_the_latest_is_kept(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single words have no BLEU but 0, and a model that learns them is not to stay at its first."""
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: 0.0)
    run = tmp_path / "run"
    settings = ("trainer.max_steps=2", "trainer.validate_every=1")
    train(config(*settings), run)
    assert bundle.load(run / "bundle").config.extra["step"] == 2
    best = AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "best.ckpt")
    assert best["global_step"] == 2


def test_a_picture_that_cannot_be_written_costs_nothing_else(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: Any) -> None:
        raise UserError("cannot write the picture: No space left on device")

    monkeypatch.setattr("translate.extras.attention_pictures.heatmap", full)
    monkeypatch.setattr("translate.extras.figures.learning_curves", full)
    run = tmp_path / "run"
    train(config("trainer.max_steps=2", "trainer.validate_every=1", "trainer.samples=1"), run)
    assert caplog.text.count("cannot write the picture") == 3
    assert records.run_status(run) == "finished"
    assert bundle.load(run / "bundle").config.extra["step"] == 2


@pytest.mark.parametrize(
    ("references", "told"),
    [([["Haus"], ["der Hund", "Hund"]], True), ([["Haus"], ["Hund", "ein Hund ist da"]], False)],
)
def test_references_too_short_for_bleu_are_told(
    references: list[list[str]], told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True)
    judge(tmp_path, references).on_fit_start(trainer, nn.Module())  # type: ignore[arg-type]
    assert ("dev BLEU stays 0" in caplog.text) == told


def test_a_run_that_goes_on_scores_by_the_tokenizer_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which was not installed when it began, say: scores of two tokenizers do not compare."""
    short = ("trainer.validate_every=1",)
    run = tmp_path / "run"
    monkeypatch.setitem(metrics.TOKENIZERS, "en", "char")
    train(config("trainer.max_steps=1", *short), run)
    assert records.read(run)["bleu_tokenizer"] == "char"
    monkeypatch.delitem(metrics.TOKENIZERS, "en")
    train(config("trainer.max_steps=2", *short), run)
    assert records.read(run)["bleu_tokenizer"] == "char"


@pytest.mark.parametrize("main", [True, False])
def test_the_score_that_processes_share_is_a_number(
    main: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor would be pickled with its device, which is the first process's."""
    dev = DevTranslations.__new__(DevTranslations)
    monkeypatch.setattr(dev, "_translate", lambda *_: 17.25)
    given: list[Any] = []
    logged: dict[str, Any] = {}

    def broadcast(score: Any) -> float:
        given.append(score)
        return 17.25

    trainer: Any = SimpleNamespace(
        is_global_zero=main, global_step=7, callback_metrics={"dev/loss": 2},
        strategy=SimpleNamespace(broadcast=broadcast), state=SimpleNamespace(fn=None),
    )  # fmt: skip
    task = TranslationTask.__new__(TranslationTask)
    object.__setattr__(task, "log", lambda name, score, **_: logged.update({name: score}))
    dev.on_validation_epoch_end(trainer, task)
    assert [type(score) for score in given] == [float]
    assert logged == {"dev/bleu": 17.25}


TEXT = pa.table({side: [f"{side} {row}" for row in range(200)] for side in ("source", "target")})


def trainer_of(*others: float) -> Any:
    """Whose other processes had a loss that is not finite first at these steps."""

    def reduce(step: torch.Tensor, reduce_op: str) -> torch.Tensor:
        assert reduce_op == "min"
        return torch.tensor(min([float(step), *others]))

    strategy = SimpleNamespace(root_device=torch.device("cpu"), reduce=reduce)
    return SimpleNamespace(
        accumulate_grad_batches=1, world_size=1 + len(others), global_step=5, strategy=strategy,
        is_global_zero=True,
    )  # fmt: skip


def steps(
    guard: StopWhenNotFinite,
    losses: list[float],
    device: str,
    trainer: Any = None,
    broken: int | None = None,
) -> None:
    """Training, with a gradient that is not finite after the batch of that index."""
    module: Any = SimpleNamespace(device=torch.device(device))
    for index, loss in enumerate(losses):
        module.step_norm = torch.tensor(float("nan") if index == broken else 1.0)
        batch: Any = SimpleNamespace(ids=torch.tensor([index, 100 + index]))
        outputs = {"loss": torch.tensor(loss)}
        guard.on_train_batch_end(trainer or trainer_of(), module, outputs, batch, index)


def test_a_loss_on_a_gpu_is_looked_at_now_and_then_and_before_each_save(tmp_path: Path) -> None:
    """There each look waits for all the work that was given out."""
    guard = StopWhenNotFinite(tmp_path, every=4, text=TEXT)
    steps(guard, [1.0, float("inf"), 2.0], "cuda")
    with pytest.raises(
        UserError, match=r"the loss is not finite at step 2 \(its training pairs: .*json"
    ):
        guard.on_save_checkpoint(trainer_of(), nn.Linear(4, 4), {})  # type: ignore[arg-type]
    record = json.loads((tmp_path / "not_finite.json").read_text())
    texts = {side: [f"{side} 1", f"{side} 101"] for side in ("source", "target")}
    assert record == {"step": 2, "loss": "inf", "pairs": [1, 101], **texts}
    guard = StopWhenNotFinite(tmp_path, every=3, text=TEXT)
    with pytest.raises(UserError, match="the loss is not finite at step 1"):
        steps(guard, [float("nan"), 1.0, 1.0], "cuda")
    steps(StopWhenNotFinite(tmp_path, every=3, text=TEXT), [1.0] * 9, "cuda")


@pytest.mark.parametrize(
    ("own", "others", "told", "writes"),
    [
        ([1.0, 1.0], [NEVER], None, False),
        ([1.0, 1.0], [1], "the loss is not finite at step 1", False),
        ([1.0, float("nan")], [NEVER], "the loss is not finite at step 2", True),
        ([1.0, float("nan")], [1], "the loss is not finite at step 1", False),  # it came from there
    ],
)
def test_a_loss_that_is_not_finite_in_one_process_stops_all_of_them(
    tmp_path: Path, own: list[float], others: list[int], told: str | None, writes: bool
) -> None:
    guard = StopWhenNotFinite(tmp_path, every=2, text=TEXT)
    with pytest.raises(UserError, match=told) if told else nullcontext():
        steps(guard, own, "cpu", trainer_of(*others))
    assert (tmp_path / "not_finite.json").exists() == writes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gradient_that_is_not_finite_is_told_with_all_pairs_of_its_step(
    tmp_path: Path, device: str
) -> None:
    guard, trainer = StopWhenNotFinite(tmp_path, every=4, text=TEXT), trainer_of()
    trainer.accumulate_grad_batches = 2
    with pytest.raises(UserError, match=r"the gradient is not finite at step 2 \(its training"):
        steps(guard, [1.0] * 8, device, trainer, broken=3)
    record = json.loads((tmp_path / "not_finite.json").read_text())
    assert record["gradient"] == "nan"
    assert record["pairs"] == [2, 102, 3, 103]
    assert record["target"][1] == "target 102"


def test_weights_that_are_no_numbers_are_neither_saved_nor_translated_with(tmp_path: Path) -> None:
    """The first process alone translates: the search's own error would leave the others waiting."""
    model: Any = nn.Linear(4, 4)
    guard = StopWhenNotFinite(tmp_path, every=1, text=TEXT)
    guard.on_save_checkpoint(trainer_of(), model, {})
    guard.on_validation_start(trainer_of(), model)
    with torch.no_grad():
        model.weight[3, 3] = float("nan")
    told = "the weights weight are not finite after step 5"
    with pytest.raises(UserError, match=told):
        guard.on_save_checkpoint(trainer_of(), model, {})
    with pytest.raises(UserError, match=told):
        guard.on_validation_start(trainer_of(), model)


def test_speed_is_of_real_tokens_without_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    logged: dict[int, dict[str, float]] = {}
    written: list[int] = []
    logger = SimpleNamespace(
        log_metrics=lambda row, step: logged.update({step: row}),
        save=lambda: written.append(len(logged)),
    )
    task: Any = object.__new__(TranslationTask)
    means = RunningMeans()
    object.__setattr__(task, "means", means)
    others = iter([4.0, 20.0] * 2)  # of two further processes: loss, tokens
    trainer: Any = SimpleNamespace(
        global_step=0, accumulate_grad_batches=1, world_size=3, loggers=[logger],
        strategy=SimpleNamespace(reduce=lambda own, reduce_op: own + next(others)),
    )  # fmt: skip
    batch: Any = SimpleNamespace(source_tokens=7, target_tokens=4)
    watch = Reports(every=2, total_steps=4, lines=False)
    watch.on_train_start(trainer, task)
    for step in (1, 2, 3, 4):
        trainer.global_step = step
        clock[0] += 4 * step
        means.add("train/loss", torch.tensor(25.0), torch.tensor(10))
        watch.on_train_batch_end(trainer, task, None, batch, step - 1)
        watch.on_validation_start(trainer, task)
        clock[0] += 100
        watch.on_validation_end(trainer, task)
    pace = {"tokens_per_second": 2 * 11 * 3 / (12 + 16), "learning_rate": 0.0}  # of two steps
    assert [*logged] == [1, 3]
    assert logged[3] == watch.shown == {"train/loss": pytest.approx(54 / 40), **pace}
    assert written == [1, 2]


def test_the_time_left_of_a_run_that_goes_on_counts_its_own_steps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    caplog.set_level("INFO", "translate")
    task: Any = object.__new__(TranslationTask)
    means = RunningMeans()
    object.__setattr__(task, "means", means)
    trainer: Any = SimpleNamespace(
        global_step=90, accumulate_grad_batches=1, world_size=1, loggers=[],
        strategy=SimpleNamespace(reduce=lambda own, reduce_op: own),
    )  # fmt: skip
    watch = Reports(every=2, total_steps=100, lines=True)
    watch.on_train_start(trainer, task)
    for step in (91, 92):
        trainer.global_step, clock[0] = step, clock[0] + 10
        means.add("train/loss", torch.tensor(25.0), torch.tensor(10))
        batch: Any = SimpleNamespace(source_tokens=7, target_tokens=4)
        watch.on_train_batch_end(trainer, task, None, batch, step - 91)
    assert caplog.messages[-1].endswith(" 80 s left")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.4, "9 s"), (89, "89 s"), (91, "2 min"), (660, "11 min"), (7500, "2 h 05 min"),
     (273_600, "3 d 04 h")],
)  # fmt: skip
def test_an_estimate_has_few_digits(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def seen_in_a_terminal(arguments: list[str]) -> tuple[int, str]:
    """The exit status, and all that the program wrote to a terminal of 120 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(all_of, ours)
        with os.fdopen(its, "w") as terminal, redirect_stdout(terminal), redirect_stderr(terminal):
            status = main(arguments)
        seen = written.result()
    os.close(ours)
    return status, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())


def all_of(terminal: int) -> bytes:
    """What is written until the other side is closed, of which Linux makes an error."""
    written = bytearray()
    try:
        while some := os.read(terminal, 65536):
            written += some
    except OSError:
        pass
    return bytes(written)


def test_training_shows_one_bar_with_loss_speed_and_time(
    overrides: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(logging.root, "handlers", [])  # the program sends all to its stderr
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    status, seen = seen_in_a_terminal(
        ["train", f"run={tmp_path / 'run'}", *overrides("trainer.samples=3")]
    )
    assert status == 0, seen
    lines = [line.rstrip() for line in re.split(r"[\r\n]", seen)]
    bar = next(line for line in reversed(lines) if line.startswith("━") and "tokens/s" in line)
    assert re.search(r"━+ 12/12 \d:\d\d:\d\d • 0:00:00", bar), bar
    assert re.search(r"loss: \d\.\d{3} tokens/s: \d+ learning rate: \d\.\d\de-\d\d", bar), bar
    # messages stand above the bar, whole
    validated = [line for line in lines if "dev BLEU" in line]
    assert [line.partition(":")[0] for line in validated] == ["step 6", "step 12", "finished"]
    assert sum(line.startswith("  hypothesis ") for line in lines) == 6
