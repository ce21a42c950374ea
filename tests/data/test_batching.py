"""Token-budget batches: complete, within the budget, reproducible, and resumable anywhere."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from translate.data import batching, mixing
from translate.data.batching import Draw, TokenBatches, by_shape, collate, cut
from translate.data.mixing import pairs_of
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

DEFAULTS = Path(__file__).parents[2] / "conf" / "data" / "base.yaml"

lengths = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60)


def stream(pairs: list[tuple[int, int]], **changes: int | None) -> TokenBatches:
    source, target = np.array(pairs, dtype=np.int64).T
    options = {"tokens_per_batch": 40, "pool_batches": 3, "seed": 5} | changes
    weights = np.ones(len(pairs), dtype=np.float32)
    return TokenBatches(source, target, weights, **options)  # type: ignore[arg-type]


@given(pairs=lengths, epoch=st.integers(0, 5))
def test_an_epoch_is_a_permutation_within_the_budget(
    pairs: list[tuple[int, int]], epoch: int
) -> None:
    batches = stream(pairs).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    for batch in batches:
        widest = [max(pairs[i][side] for i in batch) for side in (0, 1)]
        assert len(batch) * max(widest) <= 40


@given(pairs=lengths, skip=st.integers(0, 12), world=st.integers(1, 3))
def test_shards_are_disjoint_and_resuming_gives_the_suffix(
    pairs: list[tuple[int, int]], skip: int, world: int
) -> None:
    whole = list(islice(stream(pairs), 12 * world))
    for rank in range(world):
        own = stream(pairs, rank=rank, world_size=world)
        assert list(islice(own, 12)) == whole[rank::world]
        resumed = stream(pairs, rank=rank, world_size=world, skip=skip * world)
        assert list(islice(resumed, 12 - skip)) == whole[rank::world][skip:]


@given(pairs=lengths, skip=st.integers(0, 12), world=st.integers(1, 3))
def test_another_number_of_processes_goes_on_with_the_next_batches(
    pairs: list[tuple[int, int]], skip: int, world: int
) -> None:
    shards = [
        list(islice(stream(pairs, rank=rank, world_size=world, skip=skip), 4))
        for rank in range(world)
    ]
    following = list(islice(stream(pairs), skip + 4 * world))[skip:]
    assert sorted(itertools.chain(*shards)) == sorted(following)


def test_the_stream_is_one_epoch_after_the_other() -> None:
    sampler = stream([(i % 9 + 1, i % 7 + 1) for i in range(30)])
    epochs = [[(epoch, batch.tolist()) for batch in sampler.epoch(epoch)] for epoch in range(3)]
    batches = [batch for epoch in epochs for batch in epoch]
    drawn = list(islice(sampler, len(batches)))
    assert [[tuple(draw) for draw in draws] for draws in drawn] == [
        [(epoch, pair, 0) for pair in batch] for epoch, batch in batches
    ]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_pair_that_occurs_again_is_another_draw(world_size: int) -> None:
    weights = np.array([1.0, 3.0, 2.5, 0.5])
    lengths = np.array([3, 4, 5, 6])

    def draws(rank: int, skip: int) -> Iterator[list[Draw]]:
        sampler = TokenBatches(
            lengths, lengths, weights, tokens_per_batch=12, pool_batches=2, seed=3, skip=skip,
            rank=rank, world_size=world_size,
        )  # fmt: skip
        return iter(sampler)

    whole = [list(islice(draws(rank, 0), 20 // world_size)) for rank in range(world_size)]
    in_turn = [batch for step in zip(*whole, strict=True) for batch in step]
    occurred = Counter((draw.epoch, draw.pair) for batch in in_turn for draw in batch)
    seen: Counter[tuple[int, int]] = Counter()
    for draw in itertools.chain(*in_turn):
        assert draw.occurrence == seen[draw.epoch, draw.pair]
        seen[draw.epoch, draw.pair] += 1
    assert max(occurred.values()) == 3
    for rank in range(world_size):  # gone on with in the middle of an epoch
        rest = list(islice(draws(rank, 4), 20 // world_size - 4 // world_size))
        assert rest == whole[rank][4 // world_size :]


@pytest.mark.parametrize(("width", "batches"), [(1, 3), (5, 3), (30, 1), (1, 9)])
def test_pools_are_of_one_size_and_so_many_batches_at_least(
    width: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[int] = []

    def counted(source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        pools.append(len(source))
        return by_shape(source, target)

    monkeypatch.setattr(batching, "by_shape", counted)
    stream([(width, 1)] * 300, pool_batches=batches).epoch(0)
    assert sum(pools) == 300
    assert max(pools) - min(pools) <= 1
    assert len(pools) == max(1, 300 * width // (batches * 40))


@given(pairs=lengths)
def test_neighbours_are_alike_up_and_down_in_turn(pairs: list[tuple[int, int]]) -> None:
    def snake(pair: tuple[int, int]) -> tuple[int, int]:
        source, target = pair
        up = max(pair) % 2 == 0
        return max(pair), source - target if up else target - source

    order = by_shape(*np.array(pairs, dtype=np.int64).T)
    assert [pairs[place] for place in order] == sorted(pairs, key=snake)


def slowly_cut(order: list[int], longest: list[int], budget: int) -> list[list[int]]:
    """Pair by pair."""
    batches: list[list[int]] = [[]]
    for pair in order:
        longer = [*batches[-1], pair]
        if batches[-1] and len(longer) * max(longest[i] for i in longer) > budget:
            batches.append([])
        batches[-1].append(pair)
    return batches


@given(pairs=lengths, budget=st.integers(1, 60), sort=st.booleans())
def test_batches_are_cut_as_pair_by_pair(
    pairs: list[tuple[int, int]], budget: int, sort: bool
) -> None:
    source, target = np.array(pairs, dtype=np.int32).T
    order = by_shape(source, target) if sort else np.arange(len(pairs))
    batches = cut(order, source, target, budget)
    expected = slowly_cut(order.tolist(), [max(pair) for pair in pairs], budget)
    assert [batch.tolist() for batch in batches] == expected


@given(data=st.data(), epochs=st.integers(1, 7), skip=st.integers(0, 5))
def test_every_pair_occurs_as_often_as_its_weight_says(
    data: st.DataObject, epochs: int, skip: int
) -> None:
    weights = np.array(data.draw(st.lists(st.sampled_from([0, 0.1, 0.5, 1, 2.25]), min_size=1)))
    if not weights.any():
        weights[0] = 1
    ones = np.ones(len(weights), dtype=np.int32)
    batches = TokenBatches(ones, ones, weights, tokens_per_batch=7, pool_batches=2, seed=3)
    drawn = [
        np.concatenate([np.zeros(0, dtype=np.int32), *batches.epoch(epoch)])
        for epoch in range(skip + epochs)
    ]
    counts = np.array([np.bincount(pairs, minlength=len(weights)) for pairs in drawn])
    for first in (0, skip):  # any run of epochs: to go on is no other mixture
        total = counts[first : first + epochs].sum(axis=0)
        assert (abs(total - epochs * weights) < 1).all()
    whole = weights == weights.astype(int)
    assert (counts[:, whole] == weights[whole]).all()


@given(
    weights=st.lists(st.sampled_from([0, 0.1, 0.75, 1, 2.25]), min_size=1, max_size=9),
    first=st.integers(0, 10**6),
    epoch=st.integers(0, 50),
)
def test_occurrences_are_those_of_the_formula(weights: list[float], first: int, epoch: int) -> None:
    """Bit by bit: another spread would be another order for a run that goes on."""
    places = np.arange(first, first + len(weights), dtype=np.uint32)
    expected = []
    for weight, place in zip(np.array(weights, dtype=np.float32).tolist(), places.tolist(),
                             strict=True):  # fmt: skip
        u = place * 2_654_435_769 % 2**32 / 2**32
        expected.append(math.floor((epoch + 1) * weight + u) - math.floor(epoch * weight + u))
    found = mixing.occurrences(np.array(weights, dtype=np.float32), places, epoch)
    assert found.tolist() == expected


def test_each_epoch_has_its_share_of_every_corpus() -> None:
    sizes, shares = (1000, 300, 77), (1.0, 0.1, 2.5)
    weights = np.repeat(np.array(shares, dtype=np.float32), sizes)
    corpus = np.repeat(np.arange(3), sizes)
    for epoch in range(12):
        counts = np.bincount(corpus[pairs_of(weights, epoch)])
        assert abs(counts - np.multiply(sizes, shares)).max() < 3


def test_a_corpus_of_several_blocks_is_mixed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.array([1, 0, 0.3, 1.7, 1] * 5, dtype=np.float32)
    whole = pairs_of(weights, 2)
    monkeypatch.setattr(mixing, "BLOCK", 4)
    assert pairs_of(weights, 2).tolist() == whole.tolist()


def test_epochs_differ_and_repeat_with_the_seed() -> None:
    pairs = [(i % 9 + 1, i % 7 + 1) for i in range(100)]
    first, again, second = (
        [batch.tolist() for batch in stream(pairs).epoch(epoch)] for epoch in (0, 0, 1)
    )
    assert first == again != second


def test_padding_is_small_on_lengths_of_real_sentences() -> None:
    """Their number, mean and spread are nearly those of Multi30k in 8,000 pieces."""
    default = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))["pool_batches"]
    generator = np.random.default_rng(0)
    source = generator.gamma(9, 1.5, 29_000).astype(np.int64) + 3
    target = np.maximum(3, source + generator.normal(0, 3, 29_000)).astype(np.int64)
    for pool, share in {default: 0.03, 200: 0.025, 400: 0.02}.items():
        batches = TokenBatches(
            source, target, np.ones(29_000), tokens_per_batch=2000, pool_batches=pool, seed=0
        ).epoch(0)
        padded = sum(len(b) * (source[b].max() + target[b].max()) for b in batches)
        assert 1 - (source.sum() + target.sum()) / padded < share


def test_a_pair_larger_than_a_batch_is_refused() -> None:
    with pytest.raises(UserError, match=r"41 tokens.*batch of 40.*data\.tokens_per_batch"):
        stream([(41, 3)])


def test_a_pair_as_large_as_a_batch_or_left_out_is_not_refused() -> None:
    assert [batch.tolist() for batch in stream([(40, 3)]).epoch(0)] == [[0]]
    lengths, weights = np.array([41, 5]), np.array([0.0, 1.0])
    batches = TokenBatches(lengths, lengths, weights, tokens_per_batch=40, pool_batches=1, seed=0)
    assert [batch.tolist() for batch in batches.epoch(0)] == [[1]]


def test_no_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="no training pairs"):
        TokenBatches(
            np.zeros(0), np.zeros(0), np.zeros(0), tokens_per_batch=9, pool_batches=1, seed=0
        )


def test_collate_adds_the_special_tokens() -> None:
    ids = [np.array([7, 8], dtype=np.int32), np.array([9], dtype=np.int32)]
    batch = collate([3, 4], ids, ids[::-1])
    assert batch.source.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.target_in.tolist() == [[BOS, 9, PAD], [BOS, 7, 8]]
    assert batch.target_out.tolist() == [[9, EOS, PAD], [7, 8, EOS]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_lengths.tolist() == [2, 3]
    assert (batch.source_tokens, batch.target_tokens) == (5, 5)
    assert batch.ids.tolist() == [3, 4]


@pytest.mark.parametrize("gold", [None, torch.rand(2, 3, 3)], ids=["plain", "guided"])
def test_a_batch_repeated_is_all_of_it_and_all_of_it_again(gold: torch.Tensor | None) -> None:
    ids = [np.array([7, 8], dtype=np.int32), np.array([9], dtype=np.int32)]
    batch = collate([3, 4], ids, ids[::-1])._replace(gold=gold)
    twice = batch.repeated(2)
    assert twice._fields == batch._fields
    for once, again in zip(batch, twice, strict=True):
        if isinstance(once, torch.Tensor):
            assert torch.equal(again, torch.cat([once, once]))
        else:
            assert again == (once and 2 * once)  # numbers of tokens, and gold that is not there
