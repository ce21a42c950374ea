"""Batches of a corpus, and where the decoder should look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conf_nodes import corpus_of, node
from hypothesis import given
from hypothesis import strategies as st

from translate.data import module
from translate.data.batching import Batch, Draw, Lengths, lengths
from translate.data.corpus import Corpus
from translate.data.module import Pairs, TranslationData
from translate.data.pairs import Places
from translate.errors import UserError
from translate.extras.gold_attention import gold_rows

BUDGET = 120


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Corpus]:
    cache = tmp_path_factory.mktemp("cache")

    def prepared(*, dropout: float) -> Corpus:
        data = node("data", "toy", train=200, dev=10, test=5)
        sampling = {"alpha": 0.0, "dropout": dropout}
        tokenizer = node("tokenizer", "bpe", vocab_size=600, sampling=sampling)
        return corpus_of(data, tokenizer, cache=cache)

    return prepared


def batches(corpus: Corpus, count: int, **changes: Any) -> list[Batch]:
    options: dict[str, Any] = {
        "max_length": 100, "tokens_per_batch": BUDGET, "pool_batches": 5, "workers": 0,
        "sampling": False, "guided": False, "seed": 1,
    }  # fmt: skip
    return list(islice(TranslationData(corpus, **options | changes).train_dataloader(), count))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_for_a_gpu_are_pinned(
    corpus: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    data = TranslationData(
        corpus(dropout=0.0), max_length=100, tokens_per_batch=BUDGET, pool_batches=5, workers=0,
        sampling=False, guided=False, seed=1,
    )  # fmt: skip
    strategy = SimpleNamespace(root_device=torch.device(device))
    trainer: Any = SimpleNamespace(strategy=strategy, global_rank=0, world_size=1)
    monkeypatch.setattr(data, "trainer", trainer)
    assert data.train_dataloader().pin_memory == (device == "cuda")


@pytest.mark.parametrize("dropout", [0.1, 0.9])
def test_no_batch_of_sampled_pieces_is_larger_than_planned(
    corpus: Callable[..., Corpus], dropout: float
) -> None:
    wild = corpus(dropout=dropout)
    _, target = lengths(wild.train)
    drawn = batches(wild, 60, sampling=True)
    for batch in drawn:
        assert max(batch.source.numel(), batch.target_in.numel()) <= BUDGET
    longer = sum(
        int(batch.target_lengths.sum() > target[batch.ids.numpy()].sum()) for batch in drawn
    )
    assert longer > 30  # else nothing was sampled


def test_batches_of_sampled_pieces_are_more_than_half_full(corpus: Callable[..., Corpus]) -> None:
    drawn = batches(corpus(dropout=0.1), 60, sampling=True)
    filled = sum(int(batch.source_lengths.sum() + batch.target_lengths.sum()) for batch in drawn)
    assert filled / (2 * BUDGET * len(drawn)) > 0.55  # four rows leave more than forty would


def test_each_draw_of_a_pair_is_cut_anew_and_again_the_same(
    corpus: Callable[..., Corpus],
) -> None:
    wild = corpus(dropout=0.5)
    source, target = lengths(wild.train)
    pair = int(source.argmax())

    def drawn(places: Places) -> tuple[Lengths, Lengths]:
        return 10 * source[places], 10 * target[places]

    def cut(epoch: int, occurrence: int, seed: int = 1) -> str:
        tokenizers = [(len(wild.train), wild.tokenizers)]
        pairs = Pairs(wild.train, tokenizers, drawn=drawn, guided=False, seed=seed)
        batch = pairs.__getitems__([Draw(epoch, pair, occurrence)])
        return f"{batch.source.tolist()} {batch.target_out.tolist()}"

    draws = [(0, 0), (1, 0), (2, 0), (0, 1), (0, 0, 2)]
    assert len({cut(*draw) for draw in draws}) == len(draws)
    assert cut(1, 0) == cut(1, 0)


def test_a_dev_line_that_would_fill_the_memory_is_left_out(
    corpus: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = corpus(dropout=0.0)
    longest = [max(pair) - 1 for pair in zip(*lengths(table.dev), strict=True)]
    limit = sorted(longest)[len(longest) // 2]
    monkeypatch.setattr(module, "MOST_JUDGED", limit)
    options: dict[str, Any] = {
        "tokens_per_batch": BUDGET, "pool_batches": 5, "workers": 0, "sampling": False,
        "guided": False, "seed": 1,
    }  # fmt: skip
    data = TranslationData(table, max_length=1, **options)
    kept = [i for i, length in enumerate(longest) if length <= limit]
    assert sorted(int(i) for batch in data.val_dataloader() for i in batch.ids) == kept
    first = next(i for i, length in enumerate(longest, start=1) if length > limit)
    said = f"{10 - len(kept)} of 10 dev pairs have more than {limit} pieces and are left out"
    assert f"{said} of dev/loss, the first of them dev pair {first}" in caplog.text
    assert TranslationData(table, max_length=max(longest), **options).judged.all()
    monkeypatch.setattr(module, "MOST_JUDGED", 1)
    data = TranslationData(table, max_length=limit, **options)  # as of the training pairs
    assert data.judged.tolist() == [length <= limit for length in longest]
    with pytest.raises(UserError, match="every dev pair has more than 1 pieces"):
        TranslationData(table, max_length=1, **options)


def test_pairs_longer_than_max_length_are_left_out(corpus: Callable[..., Corpus]) -> None:
    table = corpus(dropout=0.0)
    longest = [max(pair) - 1 for pair in zip(*lengths(table.train), strict=True)]
    limit = sorted(longest)[len(longest) // 2]
    assert limit < max(longest)
    ids = {int(i) for batch in batches(table, 200, max_length=limit) for i in batch.ids}
    assert ids == {i for i, length in enumerate(longest) if length <= limit}


TOY = node("data", "toy", train=60, dev=4, test=4, min_words=5, max_words=9)
UNIGRAM = node("tokenizer", "unigram", vocab_size=150, hard_vocab_limit=False, byte_fallback=False)
WORD = node("tokenizer", "word", vocab_size=1000)


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


@pytest.fixture(scope="module", params=["unigram", "word"])
def aligned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    tokenizer = UNIGRAM if request.param == "unigram" else WORD
    return corpus_of(TOY, tokenizer, cache=tmp_path_factory.mktemp("cache"))


def guided_batches(aligned: Corpus, *, guided: bool, sampling: bool = False) -> list[Batch]:
    data = TranslationData(
        aligned, max_length=100, tokens_per_batch=200, pool_batches=2, workers=0,
        sampling=sampling, guided=guided, seed=3,
    )  # fmt: skip
    return list(islice(data.train_dataloader(), 6))


def test_batches_carry_the_rows_of_their_pairs(aligned: Corpus) -> None:
    pieces = aligned.tokenizers.source.pieces
    for batch in guided_batches(aligned, guided=True):
        assert batch.gold is not None
        for row, index in enumerate(batch.ids.tolist()):
            (pair,) = aligned.train.slice(index, 1).to_pylist()
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
    aligned = corpus_of(TOY | {"tag": "en"}, WORD, cache=tmp_path)
    tagged = aligned.tokenizers.tagged("en")
    for batch in guided_batches(aligned, guided=True):
        assert batch.gold is not None
        assert (batch.source[:, 0] == tagged.source.prefix[0]).all()
        assert not batch.gold[:, :, 0].any()
        for found, index in zip(batch.gold, batch.ids.tolist(), strict=True):
            (pair,) = aligned.train.slice(index, 1).to_pylist()
            each = [[[0]] * len(pair[side].split()) for side in ("source", "target")]  # one piece
            expected = gold_rows(pair["alignment"], *each)
            height, width = expected.shape
            assert np.array_equal(found[:height, 1 : width + 1], expected)


def test_guidance_leaves_the_stream_of_batches_alone(aligned: Corpus) -> None:
    guided, plain = guided_batches(aligned, guided=True), guided_batches(aligned, guided=False)
    for one, other in zip(guided, plain, strict=True):
        assert other.gold is None
        for a, b in zip(one[:-1], other[:-1], strict=True):
            assert np.array_equal(a, b)


def test_words_that_cannot_be_told_apart_guide_nothing(aligned: Corpus) -> None:
    """Two unknown words in a row are one `<unk>` of the sentence."""
    unknown = [f"日本 語 {text}" for text in aligned.train["source"].to_pylist()]
    place = aligned.train.column_names.index("source")
    train = aligned.train.set_column(place, "source", [unknown])
    batch = guided_batches(replace(aligned, train=train), guided=True)[0]
    assert batch.gold is not None
    assert batch.gold.shape[1:] == (batch.target_in.shape[1], batch.source.shape[1])
    assert not batch.gold.any()


def test_guidance_needs_alignments(aligned: Corpus) -> None:
    bare = replace(aligned, train=aligned.train.drop_columns("alignment"))
    with pytest.raises(UserError, match=r"choose data=toy, or data=files with data.alignments"):
        guided_batches(bare, guided=True)
