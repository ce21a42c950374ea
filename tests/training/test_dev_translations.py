"""Dev BLEU, by which the best checkpoint is chosen, is that of the target language."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from sacrebleu.metrics.bleu import BLEU

from translate.errors import UserError
from translate.evaluation import metrics
from translate.inference import bundle
from translate.training import callbacks, records
from translate.training.callbacks import DevTranslations
from translate.training.checkpoints import AtomicCheckpointIO, LastCheckpoint
from translate.training.run import Interrupted, train
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]

CHINESE = ("他在北京买了一本好书。 A new book!", "他在北京买了一本新书。 A new book.")
THAI = ("ฉันอยู่ที่กรุงเทพมหานคร", "ฉันอยู่ที่กรุงเทพ")
GERMAN = ("Er kauft in Peking (北京) ein Buch!", "Er kaufte in Peking (北京) ein Buch.")


def shown(sentences: int) -> Any:
    """A configuration that judges by so many sentences."""
    trainer = SimpleNamespace(validation_sentences=sentences, samples=0)
    return SimpleNamespace(trainer=trainer)


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

    rows = pa.table({"source": ["a new book"], "references": [[reference]]})
    saved: list[int] = []
    corpus: Any = SimpleNamespace(dev=rows, target_language=language, tokenizers=None)
    nothing: Any = None
    dev = DevTranslations(
        shown(1), corpus, tmp_path, search=nothing, tokens_per_batch=8,
    )  # fmt: skip
    stand_in = SimpleNamespace(translate=lambda sources: [said])
    monkeypatch.setattr(callbacks, "Translator", lambda *args, **kwargs: stand_in)
    monkeypatch.setattr(dev, "_save_bundle", lambda model, step: saved.append(step))
    trainer: Any = SimpleNamespace(global_step=7)
    model = SimpleNamespace(train=lambda: None)
    task: Any = SimpleNamespace(model=model, evaluated=model, device="cpu")
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
    settings = ("trainer.max_steps=2", "trainer.validate_every=1", "trainer.samples=0")
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
    train(config("trainer.max_steps=2", "trainer.validate_every=1"), run)
    assert caplog.text.count("cannot write the picture") == 3
    assert records.run_status(run) == "finished"
    assert bundle.load(run / "bundle").config.extra["step"] == 2


@pytest.mark.usefixtures("pictures")
def test_a_sentence_of_hundreds_of_pieces_is_not_drawn(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "MOST_DRAWN", 1)
    train(config("trainer.max_steps=1", "trainer.validate_every=1"), tmp_path / "run")
    assert not list((tmp_path / "run").rglob("attention*"))


@pytest.mark.parametrize(
    ("references", "told"),
    [([["Haus"], ["der Hund", "Hund"]], True), ([["Haus"], ["Hund", "ein Hund ist da"]], False)],
)
def test_references_too_short_for_bleu_are_told(
    references: list[list[str]], told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"source": ["house", "dog"], "references": references})
    corpus: Any = SimpleNamespace(dev=rows, target_language="de", tokenizers=None)
    nothing: Any = None
    dev = DevTranslations(
        shown(2), corpus, tmp_path, search=nothing, tokens_per_batch=8,
    )  # fmt: skip
    trainer: Any = SimpleNamespace(is_global_zero=True)
    dev.on_fit_start(trainer, nothing)
    assert ("dev BLEU stays 0" in caplog.text) == told


def test_a_run_that_goes_on_scores_by_the_tokenizer_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which was not installed when it began, say: scores of two tokenizers do not compare."""
    short = ("trainer.validate_every=1", "trainer.samples=0", "trainer.validation_sentences=2")
    run = tmp_path / "run"
    monkeypatch.setitem(metrics.TOKENIZERS, "en", "char")
    train(config("trainer.max_steps=1", *short), run)
    assert records.read(run)["bleu_tokenizer"] == "char"
    monkeypatch.delitem(metrics.TOKENIZERS, "en")
    train(config("trainer.max_steps=2", *short), run)
    assert records.read(run)["bleu_tokenizer"] == "char"
    records.write(run, bleu_tokenizer="no longer there")
    with pytest.raises(UserError, match="BLEU tokenizer 'no longer there'"):
        train(config("trainer.max_steps=3", *short), run)


def test_the_best_of_a_validation_after_the_last_checkpoint_is_not_forgotten(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped at a step without one, told that this will do, and then gone on."""
    scores = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr(callbacks, "bleu", lambda *_, **__: next(scores))
    original = LastCheckpoint.on_train_batch_end

    def stopped_once(self: LastCheckpoint, trainer: Any, task: Any, *args: Any) -> None:
        if trainer.global_step == 3 and not (run / "stopped").exists():
            (run / "stopped").touch()
            self.heard = signal.SIGTERM
        original(self, trainer, task, *args)

    monkeypatch.setattr(LastCheckpoint, "on_train_batch_end", stopped_once)
    short = ("trainer.validate_every=2", "trainer.samples=0", "trainer.validation_sentences=2")
    run = tmp_path / "run"
    with pytest.raises(Interrupted, match="everything is saved"):
        train(config("trainer.max_steps=9", *short), run)
    train(config("trainer.max_steps=3", *short), run)
    train(config("trainer.max_steps=4", *short), run)
    assert bundle.load(run / "bundle").config.extra["step"] == 3
    assert records.read(run)["dev_bleu"] == 30.0


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
