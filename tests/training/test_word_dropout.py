"""Words that training leaves out: which, how many, and where they still are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from translate.data.batching import Batch, collate
from translate.training.objectives import drop_words
from translate.training.step import TranslationTask
from translate.vocabulary import EOS, UNK


def batch(sentences: int = 200, length: int = 12, words: int = 6) -> Batch:
    random = np.random.default_rng(0)
    sides = [
        [random.integers(4, 4 + words, size=random.integers(1, length)).astype(np.int32)
         for _ in range(sentences)] for _ in range(2)
    ]  # fmt: skip
    return collate(list(range(sentences)), *sides)


def test_a_word_is_dropped_at_all_its_places_or_at_none() -> None:
    torch.manual_seed(1)
    whole = batch()
    dropped = drop_words(whole, 0.3)
    for before, after in ((whole.source, dropped.source), (whole.target_in, dropped.target_in)):
        assert not torch.equal(before, after)
        for sentence, read in zip(before.tolist(), after.tolist(), strict=True):
            fates: dict[int, set[int]] = {}
            for word, now in zip(sentence, read, strict=True):
                fates.setdefault(word, set()).add(now)
            for word, found in fates.items():
                assert found in ({word}, {UNK} if word > EOS else {word})


def test_the_rate_is_that_of_words_and_what_is_to_be_written_stays() -> None:
    torch.manual_seed(2)
    whole = batch(sentences=4000, words=5000)  # next to none occurs twice
    dropped = drop_words(whole, 0.1)
    words = whole.source > EOS
    rate = float((dropped.source[words] == UNK).double().mean())
    assert abs(rate - 0.1) < 5 * (0.1 * 0.9 / int(words.sum())) ** 0.5
    back = dropped._replace(source=whole.source, target_in=whole.target_in)
    assert all(one is other for one, other in zip(back, whole, strict=True))
    assert drop_words(whole, 0.0) is whole


def test_the_seed_of_a_step_decides() -> None:
    whole = batch()
    torch.manual_seed(3)
    first, second = drop_words(whole, 0.3), drop_words(whole, 0.3)
    torch.manual_seed(3)
    assert torch.equal(drop_words(whole, 0.3).source, first.source)
    assert not torch.equal(first.source, second.source)


def test_dropout_is_another_at_each_step_seed_and_process() -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        task: Any = SimpleNamespace(seed=seed, global_rank=rank, device=torch.device("cpu"))
        TranslationTask.on_train_batch_start(task, batch(), step)
        return torch.rand(()).item()

    places = [(seed, step, rank) for seed in (1, 2) for step in (0, 1, 2) for rank in (0, 1)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(1, 2, 0) == drawn(1, 2, 0)


def test_a_gpu_is_seeded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    for step in (0, 1, 0):
        task: Any = SimpleNamespace(seed=1, global_rank=0, device=torch.device("cuda", 0))
        TranslationTask.on_train_batch_start(task, batch(), step)
        assert torch.initial_seed() == seeds[-1]
    assert seeds[0] == seeds[2] != seeds[1]


def test_tags_stay() -> None:
    whole = batch(words=3)  # 4, 5 and 6, the first two of them tags
    dropped = drop_words(whole, 0.9, tags=2)
    tags = (whole.source == EOS + 1) | (whole.source == EOS + 2)
    assert torch.equal(dropped.source[tags], whole.source[tags])
    assert (dropped.source[whole.source == EOS + 3] == UNK).any()
    assert (dropped.target_in[whole.target_in == EOS + 1] == UNK).any()
