"""A tag stands before every source the model reads, whichever way it came there."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_translators import learned
from torch import nn

from translate.data.tokenizer import Tokenizers
from translate.extras.attention_maps import Aligner, between_words
from translate.inference.lines import Cutter
from translate.inference.translator import Translator
from translate.models.head import choose_head
from translate.search import Hypothesis, build
from translate.vocabulary import EOS

GREEDY = {"kind": "greedy", "max_length_ratio": 2.0, "max_length_offset": 5}
WORDS = ["el", "perro", "come", "la", "casa"]


class Unread(nn.Module):
    max_length, source_multiple = None, 1


class Recording:
    """Answers nothing, and keeps what it was asked."""

    rules = SimpleNamespace(banned=())

    def __init__(self) -> None:
        self.sources: list[list[int]] = []

    def __call__(self, model: Any, source: Any, mask: Any, **_: Any) -> list[list[Hypothesis]]:
        self.sources += [row[real].tolist() for row, real in zip(source, mask, strict=True)]
        return [[Hypothesis((), 0.0, 0.0, (0.0,), None, True)] for _ in source]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    texts = [f"{a} {b} {c}." for a in WORDS for b in WORDS for c in WORDS]
    both = learned(texts, vocab_size=40, tags=["de", "fr"])
    return Tokenizers(both, both)


@pytest.mark.parametrize("tag", ["de", "fr", None])
def test_every_segment_of_a_line_begins_with_the_tag(
    tokenizers: Tokenizers, tag: str | None
) -> None:
    tagged = tokenizers.tagged(tag)
    line = "el perro come. la casa come. come el perro."
    search = Recording()
    model: Any = Unread()
    translator = Translator(model, tagged, search, max_source_length=8)
    translator.translate(["perro", line, ""])
    front = [] if tag is None else [tagged.source._processor.piece_to_id(f"<{tag}>")]
    assert len(search.sources) > 2  # the line is longer than the model may be given at once
    for ids in search.sources:
        assert ids[: len(front)] == front
        assert ids[-1] == EOS
        assert len(ids) <= 8 + 1
    read = sorted(tuple(ids[len(front) : -1]) for ids in search.sources)
    whole = [tokenizers.source.encode(text) for text in ("perro", line)]
    assert sorted(i for ids in read for i in ids) == sorted(i for ids in whole for i in ids)


def test_the_tag_is_among_the_pieces_people_see(tokenizers: Tokenizers) -> None:
    source = tokenizers.source.tagged("fr")
    assert source.spelled("perro")[0] == source.pieces(source.encode("perro"))[0] == "<fr>"
    assert [*source.prefix, *chain(*source.encode_words("el perro"))] == source.encode("el perro")
    assert source.encode("  ") == source.spelled("  ") == source.encode_words(" ") == []
    assert source.decode(source.encode("perro")) == "perro"


def test_what_a_target_word_gives_the_tag_is_no_words(tokenizers: Tokenizers, make_model) -> None:
    model, tagged = make_model("transformer", tokenizers), tokenizers.tagged("fr")
    head = choose_head(model, layer=None, head=None)
    align = Aligner(model, tagged, head, tokens_per_batch=40, device=torch.device("cpu"))
    source, target = "\u200b el perro", "la casa come"
    attention = Translator(model, tagged, build(GREEDY)).align(source, target)
    assert attention.source_pieces[0] == "<fr>"
    pieces = attention.weights[-1].mean(axis=0)
    words = tagged.source.encode_words(source), tagged.target.encode_words(target)
    (found,) = align([source], [target])
    np.testing.assert_allclose(found, between_words(pieces[:, 1:], *words), atol=1e-6)
    assert not found[:, 0].any()  # of invisible characters alone
    assert found[:, 1:].all()


def test_a_tag_takes_its_place_once_in_a_part_of_a_line(tokenizers: Tokenizers) -> None:
    cut = Cutter(tokenizers.source.tagged("de"), language="es", limit=13, sentences=False)
    lengths = [len(ids) for ids in cut("casa " * 60, 1).ids]
    assert max(lengths) == 13
    assert len(lengths) <= 6
