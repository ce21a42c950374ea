"""Gold rows by hand and by their properties, and how training batches carry them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conf_nodes import corpus_of
from hypothesis import given
from hypothesis import strategies as st

from translate.data.batching import Batch
from translate.data.corpus import Corpus
from translate.data.guidance import gold_rows, pad_rows
from translate.data.module import TranslationData
from translate.errors import UserError

TOY = {
    "kind": "toy", "source": "de", "target": "en", "attribution": None, "seed": 1,
    "train": 60, "dev": 4, "test": 4, "min_words": 5, "max_words": 9, "allow_overlap": True,
    "tag": None, "extra": None, "temperature": 1.0,
    "max_length": 100, "tokens_per_batch": 200, "pool_batches": 2, "workers": 0,
    "hold_out": {"dev": 4, "test": 4},
    "cleaning": {
        "replace": [], "max_characters": 1000, "length_ratio": 3.0, "ratio_slack": 10,
        "drop_identical": True, "drop_duplicates": True,
    },
}  # fmt: skip
UNIGRAM = {
    "kind": "unigram", "joint": True, "vocab_size": 150, "hard_vocab_limit": False,
    "character_coverage": 1.0, "byte_fallback": False, "normalization": "nmt_nfkc",
    "train_sentences": 1000, "sampling": {"alpha": 0.0, "dropout": 0.0},
}  # fmt: skip
WORD = UNIGRAM | {"kind": "word", "vocab_size": 1000}


def test_gold_rows_by_hand() -> None:
    source, target = [[5, 6], [7], [8]], [[9], [10, 11], [12]]
    half, third = 1 / 2, 1 / 3
    expected = [
        [half, half, 0, 0, 0],  # the first word goes with a word of two pieces
        [third, third, third, 0, 0],  # both pieces of the second go with two words
        [third, third, third, 0, 0],
        [0, 0, 0, 0, 0],  # the third goes with none
        [0, 0, 0, 0, 1],  # </s> with </s>
    ]
    rows = gold_rows([(0, 0), (0, 1), (1, 1)], source, target)
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


words = st.lists(st.lists(st.just(9), max_size=3), min_size=1, max_size=5)


@given(words, words, st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_a_row_sums_to_one_or_zero_and_stays_with_its_links(
    source: list[list[int]], target: list[list[int]], links: set[tuple[int, int]]
) -> None:
    links = {(i, j) for i, j in links if i < len(source) and j < len(target)}
    rows = gold_rows(links, source, target)
    assert rows.shape == (sum(map(len, target)) + 1, sum(map(len, source)) + 1)
    owner = [[i for i, word in enumerate(side) for _ in word] for side in (source, target)]
    for t, j in enumerate(owner[1]):
        linked = [s for s, i in enumerate(owner[0]) if (i, j) in links]
        assert np.flatnonzero(rows[t]).tolist() == linked
        assert rows[t].sum() == pytest.approx(1.0 if linked else 0.0)


def test_padding_adds_zeros() -> None:
    padded = pad_rows([np.ones((1, 3), np.float32), np.ones((2, 1), np.float32)])
    assert padded.tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0]]]


@pytest.fixture(scope="module", params=["unigram", "word"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    tokenizer = UNIGRAM if request.param == "unigram" else WORD
    return corpus_of(TOY, tokenizer, cache=tmp_path_factory.mktemp("cache"))


def batches(corpus: Corpus, *, guided: bool, sampling: bool = False) -> list[Batch]:
    data = TranslationData(
        corpus, max_length=100, tokens_per_batch=200, pool_batches=2, workers=0,
        sampling=sampling, guided=guided, seed=3,
    )  # fmt: skip
    return list(islice(data.train_dataloader(), 6))


def test_batches_carry_the_rows_of_their_pairs(corpus: Corpus) -> None:
    pieces = corpus.tokenizers.source.pieces
    for batch in batches(corpus, guided=True):
        assert batch.gold is not None
        for row, index in enumerate(batch.ids.tolist()):
            (pair,) = corpus.train.slice(index, 1).to_pylist()
            source, target = pair["source"].split(), pair["target"].split()
            starts = [p.startswith("▁") for p in pieces(batch.source[row].tolist())]
            owner = np.cumsum(starts) - 1
            found = batch.gold[row].numpy()
            length = int(batch.target_lengths[row])
            target_starts = [p.startswith("▁") for p in pieces(batch.target_out[row].tolist())]
            links = {
                (int(owner[s]), int(word))
                for t, word in enumerate((np.cumsum(target_starts) - 1)[: length - 1])
                for s in np.flatnonzero(found[t])
            }
            assert links == {tuple(link) for link in pair["alignment"]}, (source, target)
            end = int(batch.source_lengths[row]) - 1
            assert found[length - 1].nonzero()[0].tolist() == [end]
            assert not found[length:].any()


def test_a_tag_is_no_word_to_look_at(tmp_path: Path) -> None:
    corpus = corpus_of(TOY | {"tag": "en"}, WORD, cache=tmp_path)
    tagged = corpus.tokenizers.tagged("en")
    for batch in batches(corpus, guided=True):
        assert batch.gold is not None
        assert (batch.source[:, 0] == tagged.source.prefix[0]).all()
        assert not batch.gold[:, :, 0].any()
        for found, index in zip(batch.gold, batch.ids.tolist(), strict=True):
            (pair,) = corpus.train.slice(index, 1).to_pylist()
            each = [[[0]] * len(pair[side].split()) for side in ("source", "target")]  # one piece
            expected = gold_rows(pair["alignment"], *each)
            height, width = expected.shape
            assert np.array_equal(found[:height, 1 : width + 1], expected)


def test_guidance_leaves_the_stream_of_batches_alone(corpus: Corpus) -> None:
    guided, plain = batches(corpus, guided=True), batches(corpus, guided=False)
    for one, other in zip(guided, plain, strict=True):
        assert other.gold is None
        for a, b in zip(one[:-1], other[:-1], strict=True):
            assert np.array_equal(a, b)


def test_words_that_cannot_be_told_apart_guide_nothing(corpus: Corpus) -> None:
    """Two unknown words in a row are one `<unk>` of the sentence."""
    unknown = [f"日本 語 {text}" for text in corpus.train["source"].to_pylist()]
    place = corpus.train.column_names.index("source")
    train = corpus.train.set_column(place, "source", [unknown])
    batch = batches(replace(corpus, train=train), guided=True)[0]
    assert batch.gold is not None
    assert batch.gold.shape[1:] == (batch.target_in.shape[1], batch.source.shape[1])
    assert not batch.gold.any()


def test_guidance_needs_alignments(corpus: Corpus) -> None:
    bare = replace(corpus, train=corpus.train.drop_columns("alignment"))
    with pytest.raises(UserError, match=r"choose data=toy, or data=files with data.alignments"):
        batches(bare, guided=True)
