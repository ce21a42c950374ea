"""Attention between words in batches: the same as sentence by sentence and piece by piece."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from translate.extras import attention_maps as module
from translate.extras.attention_maps import Aligner, between_words
from translate.models.head import AttentionHead, choose_head

SOURCES = ["el perro come", "", "la casa está azul.", "gato", " \u200b ", "el tren duerme la casa"]
TARGETS = ["the dog eats", "a cat", "the house is blue.", "a blue cat", "x", "the train sleeps"]


@pytest.fixture
def make_aligner(make_model, joint):
    def make(name="transformer", head=None, *, tokens_per_batch=40):
        model = make_model(name)
        head = head or choose_head(model, layer=None, head=None)
        return Aligner(
            model, joint, head,
            tokens_per_batch=tokens_per_batch, device=torch.device("cpu"),
        )  # fmt: skip

    return make


def test_weights_by_hand() -> None:
    source, target = [[5], [6, 7]], [[8, 9], [], [10]]
    pieces = np.array(
        [
            [0.1, 0.2, 0.3, 0.4],  # the row that reads <s> and predicts the first piece
            [0.5, 0.1, 0.1, 0.3],
            [0.0, 0.0, 0.9, 0.1],
            [0.2, 0.2, 0.2, 0.4],
        ]
    )
    expected = [[0.3, 0.35], [0, 0], [0.0, 0.9]]
    np.testing.assert_allclose(between_words(pieces, source, target), expected, atol=1e-7)


@pytest.mark.parametrize("head", [AttentionHead(1, 2), AttentionHead(2, None)])
def test_a_batch_gives_what_each_pair_gives_by_itself(make_aligner, make_translator, head) -> None:
    translator = make_translator("transformer")
    found = list(make_aligner(head=head)(SOURCES, TARGETS))
    for source, target, weights in zip(SOURCES, TARGETS, found, strict=True):
        assert weights.shape == (len(target.split()), len(source.split()))
        if not source.strip(" \u200b"):
            assert not weights.any()
            continue
        alone = translator.align(source, target)
        layer = alone.weights[head.layer - 1]
        pieces = layer.mean(axis=0) if head.head is None else layer[head.head - 1]
        pairs = (translator.tokenizers.source, source), (translator.tokenizers.target, target)
        expected = between_words(pieces, *(t.encode_words(text) for t, text in pairs))
        np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_the_budget_and_the_window_change_nothing(make_aligner, monkeypatch) -> None:
    whole = list(make_aligner(tokens_per_batch=1000)(SOURCES, TARGETS))
    monkeypatch.setattr(module, "WINDOW", 2)
    parts = list(make_aligner(tokens_per_batch=1)(SOURCES, TARGETS))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_recurrent_model_has_its_only_head(make_aligner) -> None:
    weights = list(make_aligner("rnn_general")(SOURCES, TARGETS))
    assert all((matrix.sum(axis=1) <= 1 + 1e-6).all() for matrix in weights)
    assert weights[0].any()


def test_a_pair_too_long_is_left_unaligned_with_a_warning(
    make_aligner, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(module, "MAX_LENGTH", 12)
    monkeypatch.setattr(module, "WINDOW", 1)
    with caplog.at_level(logging.WARNING, logger="translate"):
        short, long = make_aligner()(["perro", "perro " * 30], ["dog", "dog"])
    assert short.any()
    assert long.shape == (1, 30)
    assert not long.any()
    assert "line 2 has" in caplog.text
    assert "more than the limit of 11: left unaligned" in caplog.text


def test_a_pair_longer_than_the_model_reads_is_left_unaligned(make_model, joint, caplog) -> None:
    model = make_model("transformer", positions="learned", max_positions=6)
    head = choose_head(model, layer=None, head=None)
    aligner = Aligner(model, joint, head, tokens_per_batch=40, device=torch.device("cpu"))
    with caplog.at_level(logging.WARNING, logger="translate"):
        first, second = aligner(["la", "la casa está azul y el tren"], ["a", "the"])
    assert first.any()
    assert not second.any()
    assert "line 2 has" in caplog.text
    assert "more than the limit of 5: left unaligned" in caplog.text
