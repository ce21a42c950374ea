"""What training and validation are fed with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conf_nodes import corpus_of, node

from translate.data import module
from translate.data.batching import Batch, Draw, Lengths, lengths
from translate.data.corpus import Corpus
from translate.data.module import Pairs, TranslationData
from translate.data.pairs import Places
from translate.errors import UserError

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
