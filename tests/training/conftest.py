"""A tiny training on the toy grammar, to be run whole."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from translate.extras.attention_pictures import heatmap
from translate.extras.figures import learning_curves

CONF = str(Path(__file__).parents[2] / "conf")
TINY = [
    "data=toy", "data.train=300", "data.dev=20", "data.test=20", "data.workers=0",
    "data.tokens_per_batch=300", "tokenizer=word", "tokenizer.vocab_size=1000",
    "tokenizer.hard_vocab_limit=false", "trainer.max_steps=12", "trainer.validate_every=6",
    "trainer.save_every=5", "trainer.log_every=1", "trainer.precision=32-true",
    "trainer.averaging.every=2", "schedule.warmup_steps=4",
    "trainer.samples=0", "trainer.validation_sentences=4",
    "search.max_length_ratio=0.0", "search.max_length_offset=4",  # untrained, none ends
]  # fmt: skip
RECURRENT = ["model.hidden_size=16", "model.embedding_size=16", "model.attention_size=16"]
MODELS = {
    "transformer": ["model=transformer", "model.d_model=16", "model.d_ff=16",
                    "model.encoder_layers=2", "model.decoder_layers=2"],
    "rnn": ["model=rnn_bahdanau", *RECURRENT],
    "rnn_luong": ["model=rnn_luong", *RECURRENT],
    "convolutional": ["model=convolutional", "model.embedding_size=16", "model.hidden_size=16",
                      "model.encoder_layers=1", "model.decoder_layers=1"],
}  # fmt: skip


@pytest.fixture
def overrides(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """What a command line has to say for the tiny training."""
    cache = tmp_path_factory.getbasetemp() / "corpora"

    def complete(*more: str, model: str = "transformer") -> list[str]:
        return [*TINY, *MODELS[model], f"cache={cache}", *more]

    return complete


@pytest.fixture
def config(overrides: Callable[..., list[str]]) -> Callable[..., dict[str, Any]]:
    """The configuration that those overrides make."""

    def composed(*more: str, model: str = "transformer") -> dict[str, Any]:
        return deepcopy(_composed(*overrides(*more, model=model)))

    return composed


@cache
def _composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(CONF, version_base=None):
        chosen = compose("train", list(overrides))
    node = OmegaConf.to_container(chosen, resolve=True)
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items() if key != "experiment"}


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's pictures take half of its time here; who looks at them asks for them."""
    monkeypatch.setattr("translate.extras.figures.learning_curves", lambda *_: None)

    def undrawn(source: list[str], target: list[str], weights: Any, picture: Path) -> None:
        assert weights.shape == (len(target), len(source))

    monkeypatch.setattr("translate.extras.attention_pictures.heatmap", undrawn)


@pytest.fixture
def pictures(_no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw their learning curves and attention after all."""
    monkeypatch.setattr("translate.extras.figures.learning_curves", learning_curves)
    monkeypatch.setattr("translate.extras.attention_pictures.heatmap", heatmap)
