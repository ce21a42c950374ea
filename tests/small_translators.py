"""Tiny untrained models of every family with a real tokenizer: fixed nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from small_models import CONVOLUTIONAL, RNN, TRANSFORMER

from translate.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from translate.inference.bundle import Bundle, BundleConfig
from translate.inference.translator import Translator
from translate.models import registry
from translate.search import build

SOURCE = ["el", "la", "tren", "casa", "perro", "gato", "come", "duerme", "azul", "rojo", "está"]
TARGET = ["the", "a", "train", "house", "dog", "cat", "eats", "sleeps", "blue", "red", "is"]


def sentences(words: list[str]) -> list[str]:
    return [f"{a} {b} {c}." for a in words for b in words for c in words]


SMALLER = {
    "cell": "gru", "embedding_size": 8, "hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1,
    "attention_size": 8, "query": "current", "tied_embeddings": "all",
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "rnn_none": RNN | SMALLER | {"attention": "none"},
    "rnn_general": RNN | SMALLER | {"attention": "general"},
    "transformer": TRANSFORMER
    | {"d_model": 8, "num_heads": 2, "num_kv_heads": 2, "encoder_layers": 1, "d_ff": 16},
    "convolutional": CONVOLUTIONAL | {"embedding_size": 8, "hidden_size": 8},
}  # fmt: skip


def learned(texts: Sequence[str], *, vocab_size: int, **changes: Any) -> Tokenizer:
    """Return a tokenizer of these texts, of pieces (unigram) where nothing else is asked for."""
    usual: dict[str, Any] = {
        "kind": "unigram", "hard_vocab_limit": False, "byte_fallback": False,
        "character_coverage": 1.0, "normalization": "nmt_nfkc", "train_sentences": 10_000,
        "seed": 1,
    }  # fmt: skip
    return train_tokenizer(texts, vocab_size=vocab_size, **usual | changes)


@pytest.fixture(scope="session")
def joint() -> Tokenizers:
    both = learned(sentences(SOURCE + TARGET), vocab_size=60)
    return Tokenizers(both, both)


@pytest.fixture(scope="session")
def separate() -> Tokenizers:
    source, target = (sentences(words) for words in (SOURCE, TARGET))
    return Tokenizers(learned(source, vocab_size=40), learned(target, vocab_size=35))


@pytest.fixture(params=list(OPTIONS))
def name(request: pytest.FixtureRequest) -> str:
    """Every kind of model in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def options() -> dict[str, dict[str, Any]]:
    """What each kind of model is built from, its family included."""
    return OPTIONS


@pytest.fixture
def make_model(joint):
    """`make_model(name, tokenizers=joint, **changes)`: float64, peaked, so without ties."""

    def make(name: str, tokenizers: Tokenizers = joint, **changes: Any):
        torch.manual_seed(7)
        model = registry.build(
            {**OPTIONS[name], **changes},
            source_vocab_size=len(tokenizers.source),
            target_vocab_size=len(tokenizers.target),
        ).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)
        return model

    return make


@pytest.fixture
def make_translator(joint, make_model):
    """`make_translator(name, search options, **translator options)`."""

    def make(name: str = "transformer", search: dict[str, Any] | None = None, **options: Any):
        chosen = {
            "kind": "beam", "beam_size": 3, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 2,
            "coverage_penalty": 0.0, "max_length_ratio": 1.0, "max_length_offset": 4,
            **(search or {}),
        }  # fmt: skip
        options = {"tokens_per_batch": 30, **options}
        return Translator(make_model(name), joint, build(chosen), **options)

    return make


@pytest.fixture
def make_bundle(joint):
    """`make_bundle(name, **changes)`: a small model whose every parameter, norms too, matters."""

    def make(name: str = "transformer", **changes) -> Bundle:
        chosen = {**OPTIONS[name], **changes}
        torch.manual_seed(3)
        model = registry.build(
            chosen, source_vocab_size=len(joint.source), target_vocab_size=len(joint.target)
        ).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        config = BundleConfig.model_construct(
            family=chosen.pop("family"), options=chosen, source_language="es", target_language="en",
            search={"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 40},
        )  # fmt: skip
        return Bundle(model, joint, config, weights_sha256="of these weights")

    return make
