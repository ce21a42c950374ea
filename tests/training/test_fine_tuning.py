"""Runs that begin from a bundle: what of it they take over, refuse and remember."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import before_step

from translate.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from translate.errors import UserError
from translate.extras.fine_tuning import NEW, Origin, find_origin, origins, transfer
from translate.inference import bundle
from translate.inference.bundle import Bundle
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.training import records
from translate.training.checkpoints import LastCheckpoint
from translate.training.run import Interrupted, train
from translate.training.settings import TrainingConfig
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]
MODELS = ("transformer", "rnn", "convolutional")
SHORT = ("trainer.max_steps=2", "trainer.validate_every=2", "trainer.averaging.kind=none")


def words(*vocabulary: str) -> Tokenizer:
    return train_tokenizer(
        [" ".join(vocabulary)] * 3, kind="word", vocab_size=100, hard_vocab_limit=False,
        byte_fallback=False, character_coverage=1.0, normalization="identity",
        train_sentences=10, seed=1,
    )  # fmt: skip


def built(config: Config, vocabulary: Tokenizers, *changes: str, model: str) -> Seq2Seq:
    torch.manual_seed(3)
    return registry.build(
        config(*changes, model=model)["model"],
        source_vocab_size=len(vocabulary.source), target_vocab_size=len(vocabulary.target),
    ).eval()  # fmt: skip


def test_a_piece_has_the_row_of_the_same_piece() -> None:
    old, new = words("the", "cat", "sleeps"), words("a", "sleeps", "the", "dog")
    rows = origins(old, new)
    assert rows[:4].tolist() == [0, 1, 2, 3]
    names = old.pieces(range(len(old)))
    for piece, row in list(zip(new.pieces(range(len(new))), rows.tolist(), strict=True))[4:]:
        assert (names[row] == piece) if row != NEW else (piece in ("▁a", "▁dog"))
    assert (origins(old, old) == torch.arange(len(old))).all()


def test_special_tokens_keep_their_rows_whatever_they_are_called() -> None:
    pieces = train_tokenizer(
        ["the cat sleeps"] * 9, kind="char", vocab_size=100, hard_vocab_limit=False,
        byte_fallback=False, character_coverage=1.0, normalization="identity",
        train_sentences=10, seed=1,
    )  # fmt: skip
    assert words("the").pieces([1]) != pieces.pieces([1])
    assert origins(words("the"), pieces)[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("tied", ["all", "none"])
@pytest.mark.parametrize("model", MODELS)
def test_new_rows_lie_around_the_mean_of_the_old(config: Config, model: str, tied: str) -> None:
    old, new = words("the", "cat", "sleeps"), words("a", "sleeps", "the", "dog")
    change = f"model.tied_embeddings={tied}"
    before = built(config, Tokenizers(old, old), change, model=model)
    after = built(config, Tokenizers(new, new), change, model=model)
    drawn = {name: weight.clone() for name, weight in after.state_dict().items()}
    rows = origins(old, new)
    transfer(before, after, source=rows, target=rows)
    for name in ("source_embedding.weight", "target_embedding.weight", "output.weight"):
        table, was = after.state_dict()[name], before.state_dict()[name]
        for row, origin in zip(range(len(new)), rows.tolist(), strict=True):
            expected = was.mean(0) + drawn[name][row] if origin == NEW else was[origin]
            torch.testing.assert_close(table[row], expected)


def saved(config: Config, folder: Path, vocabulary: Tokenizers, *changes: str) -> Path:
    """A bundle of an untrained Transformer."""
    node = config(*changes)["model"]
    bundle.save(
        folder, node=node,
        model=built(config, vocabulary, *changes, model="transformer"), tokenizers=vocabulary,
        languages=("de", "en"), extra={},
        search={"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 5},
    )  # fmt: skip
    return folder


def test_other_shapes_are_refused_with_all_that_differs(config: Config, tmp_path: Path) -> None:
    both = words("the", "cat")
    folder = saved(config, tmp_path / "b", Tokenizers(both, both), "model.tied_embeddings=decoder")

    def refused(*changes: str, model: str = "transformer") -> str:
        node = TrainingConfig.model_validate(config(*changes, model=model))
        with pytest.raises(UserError, match="do not fit this model") as error:
            find_origin(tmp_path / "run", str(folder), node, resuming=False)
        return str(error.value)

    message = refused("model.d_model=32", "model.encoder_layers=3", "model.dropout=0.5")
    for line in ("d_model: 16 → 32", "encoder_layers: 2 → 3", "dropout: 0.1 → 0.5"):
        assert f"model.{line}" in message
    assert "without model= they are the bundle's" in message
    assert "model.family: 'transformer' → 'rnn'" in refused(model="rnn")
    # two matrices that were learned apart cannot become one
    assert "model.tied_embeddings: 'decoder' → 'all'" in refused("model.tied_embeddings=all")


def test_options_without_weights_may_differ_and_are_told(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = words("the", "cat")
    folder = saved(config, tmp_path / "b", Tokenizers(both, both))
    for change, told in (
        ("model.dropout=0.5", "model.dropout: 0.1 → 0.5"),
        ("model.tied_embeddings=none", "model.tied_embeddings: 'all' → 'none'"),
    ):
        node = TrainingConfig.model_validate(config(change))
        with caplog.at_level(logging.INFO):
            found = find_origin(tmp_path / "run", str(folder), node, resuming=False)
        assert isinstance(found, Origin)
        assert told in caplog.text


def test_what_is_no_bundle_is_refused_before_anything_is_written(
    config: Config, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="does not exist: check the path"):
        train(config(), tmp_path / "run", init=str(tmp_path / "nothing"))
    assert not (tmp_path / "run" / "provenance.json").exists()


@pytest.fixture
def first(config: Config, tmp_path: Path) -> Path:
    """A run to begin from."""
    train(config(*SHORT), tmp_path / "first")
    return tmp_path / "first"


def begun_from(seen: list[dict[str, torch.Tensor]]) -> Any:
    """Collect the weights that runs have at their first steps."""

    def look(task: TranslationTask, batch: Any, step: int) -> None:
        if step == 0:
            seen.append({name: w.clone() for name, w in task.model.state_dict().items()})

    return before_step(look)


def test_a_run_begins_from_another_and_goes_on_from_itself(
    config: Config, tmp_path: Path, first: Path
) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    run = tmp_path / "run"
    before: Bundle = bundle.load(first / "bundle")
    settings = config(*SHORT, "seed=9")
    with begun_from(seen):
        train(settings, run, init=str(first))
    (beginning,) = seen
    for name, weight in before.model.state_dict().items():  # the same text has the same pieces
        assert torch.equal(beginning[name], weight), name
    record = records.read(run)["init"]
    assert record == {"bundle": str(first / "bundle"), "weights": before.weights_sha256}
    assert "0 are new, 0 are lost" in (run / "train.log").read_text()
    shutil.rmtree(first)  # it is needed no more
    settings["trainer"]["max_steps"] = 3
    train(settings, run, init=str(run / ".." / first.relative_to(tmp_path)))  # spelt otherwise
    settings["trainer"]["max_steps"] = 4
    train(settings, run)
    assert records.read(run)["init"] == record
    settings["trainer"]["max_steps"] = 5
    with pytest.raises(UserError, match=r"was started from .*first/bundle, not from .*elsewhere"):
        train(settings, run, init=str(tmp_path / "elsewhere"))


def test_a_run_from_nothing_does_not_go_on_from_a_bundle(
    config: Config, tmp_path: Path, first: Path
) -> None:
    settings = config(*SHORT, "trainer.max_steps=3")
    with pytest.raises(UserError, match="was started from nothing, not from somewhere: leave out"):
        train(settings, first, init="somewhere")


def test_stopped_before_the_first_checkpoint_it_begins_from_the_same_again(
    config: Config, tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    run, settings = tmp_path / "run", config(*SHORT, "seed=9")
    with monkeypatch.context() as patch:
        patch.setattr(
            LastCheckpoint, "on_train_start", lambda *_: os.kill(os.getpid(), signal.SIGINT)
        )
        with pytest.raises((KeyboardInterrupt, SystemExit, Interrupted)):
            train(settings, run, init=str(first))
    assert not (run / "checkpoints" / "last.ckpt").exists()
    other = shutil.copytree(run, tmp_path / "other")
    train(config(*SHORT, "seed=8"), other)  # no word of another run
    assert records.read(other)["init"] is None
    with begun_from(seen):
        train(settings, run)
    expected = bundle.load(first / "bundle").model.state_dict()
    (beginning,) = seen
    assert all(torch.equal(beginning[name], weight) for name, weight in expected.items())
