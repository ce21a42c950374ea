"""Which words translate which: learned from pairs, kept in a file that says for whom it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import safetensors.torch
import torch

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.extras import lexical_shortlist
from translate.extras.lexical_shortlist import learn, read, write
from translate.extras.shortlist_search import Shortlist, ShortlistSearch
from translate.search import build
from translate.vocabulary import PAD

WORDS = {"tren": "train", "casa": "house", "perro": "dog", "gato": "cat", "azul": "blue"}


def pairs(tokenizers: Tokenizers, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Spanish words in a row, and their English."""
    chance = Random(1)
    for _ in range(count):
        words = chance.sample(list(WORDS), k=3)
        sides = " ".join(words), " ".join(WORDS[word] for word in reversed(words))
        source, target = tokenizers.source.encode(sides[0]), tokenizers.target.encode(sides[1])
        yield np.array(source), np.array(target)


def translations(shortlist: Shortlist, tokenizers: Tokenizers, word: str) -> set[int]:
    rows = shortlist.likeliest[tokenizers.source.encode(word)]
    return {piece for piece in rows.flatten().tolist() if piece != PAD}


@pytest.mark.parametrize("block", [7, 10_000])
def test_the_likeliest_are_the_translations(separate, monkeypatch, block: int) -> None:
    """Learned at once, or block by block."""
    monkeypatch.setattr(lexical_shortlist, "BLOCK", block)
    found = learn(pairs(separate, 150), separate, frequent=2, likeliest=3)
    assert found.likeliest.shape == (len(separate.source), 3)
    for word, translation in WORDS.items():
        pieces = set(separate.target.encode(translation))
        assert pieces <= translations(found, separate, word)
    counts = np.bincount(np.concatenate([np.unique(t) for _, t in pairs(separate, 150)]))
    assert counts[found.frequent].tolist() == sorted(counts, reverse=True)[:2]


def test_a_block_does_not_take_the_place_of_those_before(
    separate: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A translation that is seen often, and another in the last block alone."""
    one, often, once = np.array([9]), np.array([12]), np.array([7])
    monkeypatch.setattr(lexical_shortlist, "BLOCK", 4)
    found = learn([(one, often)] * 8 + [(one, once)] * 2, separate, frequent=0, likeliest=1)
    assert found.likeliest[9].tolist() == [12]


def test_in_a_joint_vocabulary_a_piece_may_be_copied(joint: Tokenizers) -> None:
    found = learn(pairs(joint, 20), joint, frequent=2, likeliest=3)
    assert found.likeliest[:, 0].tolist() == list(range(len(joint.source)))


def test_nothing_is_learnt_from_nothing(separate: Tokenizers) -> None:
    found = learn(iter(()), separate, frequent=5, likeliest=2)
    assert (len(found.frequent), int(found.likeliest.sum())) == (0, 0)


def test_a_translator_writes_candidates_alone_whatever_the_batch(make_translator, joint) -> None:
    shortlist = learn(pairs(joint, 20), joint, frequent=3, likeliest=2)
    translator = make_translator()
    translator.search = ShortlistSearch(translator.search, shortlist)
    lines = ["el tren azul", "gato", "la casa come el perro rojo"]
    together = list(translator.stream(lines))
    for line, n_best in zip(lines, together, strict=True):
        (alone,) = translator.stream([line])
        assert [one.text for one in alone] == [one.text for one in n_best]
        assert [one.score for one in alone] == pytest.approx([one.score for one in n_best])


def test_what_is_written_is_read_for_these_tokenizers_alone(joint, separate, tmp_path) -> None:
    file = tmp_path / "shortlist.safetensors"
    learned = learn(pairs(joint, 20), joint, frequent=5, likeliest=2)
    write(file, learned, joint)
    found = read(file, joint)
    assert torch.equal(found.frequent, learned.frequent)
    assert torch.equal(found.likeliest, learned.likeliest)
    with pytest.raises(UserError, match=r"shortlist=.* other tokenizers than those of this run"):
        read(file, separate)
    with pytest.raises(UserError, match=r"cannot be written .* choose another file with output="):
        write(tmp_path / "there" / "x", learned, joint)


@pytest.mark.parametrize("content", [None, b"garbage", safetensors.torch.save({})])
def test_no_other_file_is_read(joint: Tokenizers, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "shortlist.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"shortlist=.*: write .* with translate shortlist"):
        read(file, joint)


def test_the_whole_vocabulary_changes_no_translation(make_translator, joint, name: str) -> None:
    """Of any family, in float64 to the last bit."""
    lines = ["el tren azul", "", "la casa come el perro"]
    greedy = {"max_length_ratio": 1.0, "max_length_offset": 6}
    translator = make_translator(name)
    whole = Shortlist(torch.arange(len(joint.target)), torch.zeros(len(joint.source), 1).long())
    for search in (translator.search, build({"kind": "greedy", **greedy})):
        translator.search = search
        expected = list(itertools.chain(*translator.stream(lines)))
        translator.search = ShortlistSearch(search, whole)
        found = list(itertools.chain(*translator.stream(lines)))
        assert [(one.text, one.score) for one in found] == [
            (one.text, one.score) for one in expected
        ]
