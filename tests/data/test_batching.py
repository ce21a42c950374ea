"""Batches within budget, little padding, all pairs once, and a resume that repeats nothing."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from translate.data import batching as mixing
from translate.data.batching import (
    BATCH_COST,
    WIDE,
    Draw,
    Draws,
    Mixture,
    PairLengths,
    Spread,
    TokenBatches,
    by_shape,
    collate,
    cut,
    lengths,
    shuffled,
)
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

DEFAULTS = Path(__file__).parents[2] / "conf" / "data" / "base.yaml"

length_pairs = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60)


def mixed(pairs: list[tuple[int, int]], weights: list[float] | None = None) -> Mixture:
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    parts = [(len(pairs), 1.0)] if weights is None else [(1, weight) for weight in weights]
    return Mixture(parts, lambda places: (source[places], target[places]))


def stream(
    pairs: list[tuple[int, int]], weights: list[float] | None = None, **changes: Any
) -> TokenBatches:
    options: dict[str, Any] = {"tokens_per_batch": 40, "pool_batches": 3, "seed": 5}
    return TokenBatches(mixed(pairs, weights), **options | changes)


def ids(batches: Iterator[Draws]) -> list[list[int]]:
    return [batch.pairs.tolist() for batch in batches]


@given(pairs=length_pairs, epoch=st.integers(0, 5))
def test_an_epoch_is_a_permutation_within_the_budget(
    pairs: list[tuple[int, int]], epoch: int
) -> None:
    batches = ids(stream(pairs).epoch(epoch))
    assert sorted(itertools.chain(*batches)) == list(range(len(pairs)))
    for batch in batches:
        widest = [max(pairs[i][side] for i in batch) for side in (0, 1)]
        assert len(batch) * max(widest) <= 40


@given(pairs=length_pairs, skip=st.integers(0, 12), world=st.integers(1, 3))
def test_shards_are_disjoint_and_resuming_gives_the_suffix(
    pairs: list[tuple[int, int]], skip: int, world: int
) -> None:
    whole = list(islice(stream(pairs), 12 * world))
    for rank in range(world):
        own = stream(pairs, rank=rank, world_size=world)
        assert list(islice(own, 12)) == whole[rank::world]
        resumed = stream(pairs, rank=rank, world_size=world, skip=skip * world)
        assert list(islice(resumed, 12 - skip)) == whole[rank::world][skip:]


@given(pairs=length_pairs, skip=st.integers(0, 12), world=st.integers(1, 3))
def test_another_number_of_processes_goes_on_with_the_next_batches(
    pairs: list[tuple[int, int]], skip: int, world: int
) -> None:
    shards = [
        list(islice(stream(pairs, rank=rank, world_size=world, skip=skip), 4))
        for rank in range(world)
    ]
    following = list(islice(stream(pairs), skip + 4 * world))[skip:]
    assert sorted(itertools.chain(*shards)) == sorted(following)


@given(pairs=length_pairs, done=st.integers(0, 12))
def test_resuming_in_an_epoch_that_is_known_lays_out_no_earlier_one(
    pairs: list[tuple[int, int]], done: int
) -> None:
    whole = stream(pairs)
    batches = list(islice(whole, 13))
    begun = whole.begun_by(done)
    assert batches[done][0].epoch == begun[0]
    resumed = stream(pairs, skip=done, begun=begun)
    laid_out = []
    with pytest.MonkeyPatch.context() as patch:
        original = resumed.pool
        patch.setattr(
            resumed, "pool", lambda *which: (laid_out.append(which[1]), original(*which))[1]
        )
        assert list(islice(resumed, 13 - done)) == batches[done:]
    assert min(laid_out) == begun[0]
    assert resumed.begun_by(done) == begun


def test_the_stream_is_one_epoch_after_the_other() -> None:
    sampler = stream([(i % 9 + 1, i % 7 + 1) for i in range(30)])
    batches = [(epoch, batch) for epoch in range(3) for batch in ids(sampler.epoch(epoch))]
    drawn = list(islice(sampler, len(batches)))
    assert [[tuple(draw) for draw in draws] for draws in drawn] == [
        [(epoch, pair, 0) for pair in batch] for epoch, batch in batches
    ]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_pair_that_occurs_again_is_another_draw(world_size: int) -> None:
    def draws(rank: int, skip: int) -> Iterator[list[Draw]]:
        sampler = stream(
            [(3, 3), (4, 4), (5, 5), (6, 6)], [1.0, 3.0, 2.5, 0.5], tokens_per_batch=12,
            pool_batches=2, skip=skip, rank=rank, world_size=world_size,
        )  # fmt: skip
        return iter(sampler)

    whole = [list(islice(draws(rank, 0), 20 // world_size)) for rank in range(world_size)]
    in_turn = [batch for step in zip(*whole, strict=True) for batch in step]
    occurred: dict[tuple[int, int], list[int]] = {}
    for draw in itertools.chain(*in_turn):
        occurred.setdefault((draw.epoch, draw.pair), []).append(draw.occurrence)
    last = max(epoch for epoch, _ in occurred)  # not all of its batches are among these
    for (epoch, _), drawn in occurred.items():
        assert sorted(drawn) == list(range(len(drawn))) or epoch == last
    assert max(map(len, occurred.values())) == 3
    for rank in range(world_size):  # gone on with in the middle of an epoch
        rest = list(islice(draws(rank, 4), 20 // world_size - 4 // world_size))
        assert rest == whole[rank][4 // world_size :]


def test_short_sources_occur_more_often() -> None:
    source, target = np.array([2, 9, 3, 4, 1]), np.full(5, 9)
    mixture = Mixture(
        [(3, 1.0), (2, 0.5)], lambda places: (source[places], target[places]), short=(3, 2.5)
    )
    often = np.zeros(5, dtype=int)
    for epoch in range(4):
        drawn = mixture.draws(np.arange(mixture.slots), epoch)
        often += np.bincount(drawn.pairs, minlength=5)
    assert often.tolist() == [10, 4, 10, 2, 5]
    assert mixture.extent.source_tokens == 2 * 2.5 + 9 + 3 * 2.5 + 4 * 0.5 + 1.25


@pytest.mark.parametrize(("width", "batches"), [(1, 3), (5, 3), (30, 1), (1, 9)])
def test_pools_are_of_one_size_and_so_many_batches_at_least(width: int, batches: int) -> None:
    sampler = stream([(width, 1)] * 300, pool_batches=batches)
    pools = [sum(map(len, ids(sampler.pool(number, 0)))) for number in range(sampler.pools)]
    assert sum(pools) == 300
    assert max(pools) - min(pools) <= 1
    assert len(pools) == max(1, 300 * width // (batches * 40))


def test_only_one_pool_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        asked.append(len(places))
        return np.full(len(places), 4), np.full(len(places), 4)

    monkeypatch.setattr(mixing, "BLOCK", 50)
    sampler = TokenBatches(Mixture([(1000, 1.0)], counted), tokens_per_batch=40, pool_batches=5,
                           seed=1)  # fmt: skip
    assert max(asked) == 50
    for first in islice(sampler, 3):
        assert first
    assert asked[20:] == [50]


def cheapest(pairs: list[tuple[int, int]], budget: int) -> float:
    """The padded positions and the price of the best cut of all."""
    costs = [0.0]  # of the first 0, 1, … pairs
    for end in range(1, len(pairs) + 1):
        costs.append(math.inf)
        for start in range(end):
            source, target = (max(side) for side in zip(*pairs[start:end], strict=True))
            if end - start == 1 or max(source, target) * (end - start) <= budget:
                padded = (source + target) * (end - start)
                costs[end] = min(costs[end], costs[start] + padded + BATCH_COST * budget)
    return costs[-1]


@given(pairs=length_pairs, budget=st.integers(1, 60))
def test_the_cut_is_the_cheapest_of_all(pairs: list[tuple[int, int]], budget: int) -> None:
    """Pieces are single pairs in batches as small as these, or pairs of one length."""
    source, target = np.array(pairs, dtype=np.int32).T
    order = by_shape(source, target)
    batches = cut(source[order], target[order], budget)
    ends = [batch.stop for batch in batches]
    assert [batch.start for batch in batches] == [0, *ends[:-1]]
    assert ends[-1] == len(pairs)
    cost = 0.0
    for batch in batches:
        widths = source[order][batch].max(), target[order][batch].max()
        rows = batch.stop - batch.start
        assert rows == 1 or max(widths) * rows <= budget
        cost += sum(widths) * rows + BATCH_COST * budget
    assert cost == pytest.approx(cheapest([pairs[place] for place in order], budget))


@given(data=st.data(), epochs=st.integers(1, 7), skip=st.integers(0, 5))
def test_every_pair_occurs_as_often_as_its_weight_says(
    data: st.DataObject, epochs: int, skip: int
) -> None:
    weights = np.array(data.draw(st.lists(st.sampled_from([0, 0.1, 0.5, 1, 2.25]), min_size=1)))
    if not weights.any():
        weights[0] = 1
    pairs = [(1, 1)] * len(weights)
    batches = stream(pairs, weights.tolist(), tokens_per_batch=7, pool_batches=2)
    drawn = [list(itertools.chain(*ids(batches.epoch(epoch)))) for epoch in range(skip + epochs)]
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
    for weight, place in zip(weights, places.tolist(), strict=True):
        u = place * 2_654_435_769 % 2**32 / 2**32
        expected.append(math.floor((epoch + 1) * weight + u) - math.floor(epoch * weight + u))
    found = mixing.occurrences(np.array(weights, dtype=np.float64), places, epoch)
    assert found.tolist() == expected


def test_each_epoch_has_its_share_of_every_corpus() -> None:
    sizes, shares = (1000, 300, 77), (1.0, 0.1, 2.5)
    mixture = Mixture(
        list(zip(sizes, shares, strict=True)), lambda places: (places % 7 + 1, places % 5 + 1)
    )
    for epoch in range(12):
        drawn = mixture.draws(np.arange(mixture.slots), epoch)
        counts = np.bincount(np.searchsorted(np.cumsum(sizes), drawn.pairs, side="right"))
        assert abs(counts - np.multiply(sizes, shares)).max() < 3
        assert drawn.source_lengths.tolist() == (drawn.pairs % 7 + 1).tolist()


@pytest.mark.parametrize("block", [3, 1000])
def test_the_extent_is_of_the_pairs_that_are_not_left_out(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "BLOCK", block)
    pairs = [(3, 4), (0, 0), (7, 2), (5, 5), (1, 9)]
    extent = mixed(pairs, [1.0, 1.0, 0.5, 3.0, 0.0]).extent
    assert extent == (3, 7, 3 + 3.5 + 15, 4 + 1 + 15, 4 + 3.5 + 15)


def test_epochs_differ_and_repeat_with_the_seed() -> None:
    pairs = [(i % 9 + 1, i % 7 + 1) for i in range(100)]
    first, again, second = (ids(stream(pairs).epoch(epoch)) for epoch in (0, 0, 1))
    assert first == again != second
    assert ids(stream(pairs, seed=6).epoch(0)) != first


def test_padding_is_small_on_lengths_of_real_sentences() -> None:
    """Their number, mean and spread are nearly those of Multi30k in 8,000 pieces."""
    default = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))["pool_batches"]
    generator = np.random.default_rng(0)
    source = generator.gamma(9, 1.5, 29_000).astype(np.int64) + 3
    target = np.maximum(3, source + generator.normal(0, 3, 29_000)).astype(np.int64)
    pairs = list(zip(source.tolist(), target.tolist(), strict=True))
    for tokens, pool, share in ((2000, default, 0.025), (2000, 400, 0.02), (4096, default, 0.03)):
        batches = stream(pairs, tokens_per_batch=tokens, pool_batches=pool).epoch(0)
        padded = sum(
            len(b.pairs) * (b.source_lengths.max() + b.target_lengths.max()) for b in batches
        )
        assert 1 - (source.sum() + target.sum()) / padded < share


def test_pairs_that_give_no_batches_are_refused() -> None:
    with pytest.raises(UserError, match=r"41 tokens.*batch of 40.*data\.tokens_per_batch"):
        stream([(41, 3)])
    for pairs in ([], [(0, 0)]):
        with pytest.raises(UserError, match="no training pairs"):
            stream(pairs)
    assert ids(stream([(40, 3)]).epoch(0)) == [[0]]
    assert ids(stream([(41, 41), (5, 5)], [0.0, 1.0]).epoch(0)) == [[1]]  # one is left out
    assert ids(stream([(0, 0), (5, 5)]).epoch(0)) == [[1]]


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


@pytest.mark.parametrize("gold", [None, torch.rand(2, 2, 3)])
def test_a_batch_goes_to_another_process_whole_and_as_bytes(gold: torch.Tensor | None) -> None:
    """PyTorch's pickler would open a file for each tensor, which the other process asks for."""
    sources, targets = (
        [np.arange(4, 4 + n, dtype=np.int32) for n in ns] for ns in ((2, 1), (1, 0))
    )
    batch = collate([7, 3], sources, targets)._replace(gold=gold)
    there = pickle.loads(ForkingPickler.dumps(batch))
    assert type(there) is type(batch)
    for one, other in zip(there, batch, strict=True):
        assert torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other
    there.source[0, 0] = 9  # it can be written to


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


LIMIT = 12


def table(pairs: list[tuple[int, int]], chunk: int) -> pyarrow.Table:
    columns = (pyarrow.array(side, pyarrow.int32()) for side in zip(*pairs, strict=True))
    whole = pyarrow.table(list(columns), names=["source_length", "target_length"])
    return pyarrow.Table.from_batches(whole.to_batches(max_chunksize=chunk))


@given(
    pairs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30),
    chunk=st.integers(1, 9),
    data=st.data(),
)
def test_the_tokens_of_any_pairs_in_any_order(
    pairs: list[tuple[int, int]], chunk: int, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(pairs) - 1), max_size=40))
    source, target = PairLengths(table(pairs, chunk), max_length=LIMIT)(
        np.array(places, dtype=np.int64)
    )
    expected = [
        (0, 0) if max(pairs[place]) > LIMIT else (pairs[place][0] + 1, pairs[place][1] + 1)
        for place in places
    ]
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == expected


def test_each_corpus_has_the_spread_of_its_own_draws() -> None:
    pairs = [(4, 9), (12, 1), (13, 1), (4, 9), (0, 5)]
    spreads = [(3, Spread(1.5, 0.25), Spread(2.0, 1.0)), (2, Spread(0.5, 0.0), Spread(1.0, 4.0))]
    planned = PairLengths(table(pairs, 2), max_length=LIMIT, spreads=spreads)
    places = np.array([4, 0, 3, 1, 2])
    expected = []
    for place in places:
        if max(pairs[place]) > LIMIT:
            expected.append((0, 0))
            continue
        both = spreads[0 if place < 3 else 1][1:]
        most = [
            max(n, math.ceil(spread.mean * n + WIDE * math.sqrt(spread.variance * n)))
            for n, spread in zip(pairs[place], both, strict=True)
        ]
        expected.append((most[0] + 1, most[1] + 1))
    assert list(zip(*(side.tolist() for side in planned(places)), strict=True)) == expected
    assert expected[2] == (5, 22)  # never fewer than the best segmentation has: 4 · 0.5 are not 4


def test_a_whole_table_at_once() -> None:
    source, target = lengths(table([(3, 4), (0, 7)], 1))
    assert (source.tolist(), target.tolist()) == ([4, 1], [5, 8])


@given(size=st.integers(1, 400), seed=st.tuples(st.integers(0, 2**40), st.integers(0, 99)))
def test_every_number_stands_in_one_place(size: int, seed: tuple[int, int]) -> None:
    assert sorted(shuffled(np.arange(size), size, seed).tolist()) == list(range(size))


@given(data=st.data(), size=st.integers(1, 10**12))
def test_a_place_has_its_number_whatever_else_is_asked(data: st.DataObject, size: int) -> None:
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    whole = shuffled(np.array(places), size, (1, 2)).tolist()
    assert whole == [int(shuffled(np.array([place]), size, (1, 2))[0]) for place in places]
    assert len(set(whole)) == len(set(places))
    assert all(0 <= number < size for number in whole)


def test_the_order_of_a_seed_never_changes() -> None:
    """Another one would be another order for a run that goes on."""
    assert shuffled(np.arange(8), 8, (1, 0)).tolist() == [0, 5, 4, 2, 7, 1, 3, 6]
    assert shuffled(np.arange(4), 10**12, (7, 3)).tolist() == [
        492_690_532_964,
        378_470_839_193,
        856_122_767_910,
        808_591_827_654,
    ]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_permutations_of_a_few_are_as_likely(size: int) -> None:
    """Chi-squared of 50 draws of each permutation; chance passes a limit once in a thousand."""
    count = math.factorial(size)
    found = Counter(
        tuple(shuffled(np.arange(size), size, (seed, 0)).tolist()) for seed in range(50 * count)
    )
    excess = sum((found[order] - 50) ** 2 / 50 for order in itertools.permutations(range(size))) / (
        count - 1
    )
    assert excess < (11 if size == 2 else 4 if size == 3 else 2.2)


def test_neighbours_and_places_do_not_hang_together() -> None:
    """Correlations of independent numbers are below 4/√n but for one in ten thousand."""
    size = 100_003
    order = shuffled(np.arange(size), size, (3, 1)).astype(float)
    other = shuffled(np.arange(size), size, (3, 2)).astype(float)
    limit = 4 / math.sqrt(size)
    for lag in (1, 2, 316, 317):  # 317 is the width of its table
        assert abs(np.corrcoef(order[lag:], order[:-lag])[0, 1]) < limit
        assert abs(np.corrcoef(np.diff(order)[lag:], np.diff(order)[:-lag])[0, 1] - (
            -0.5 if lag == 1 else 0)) < limit  # fmt: skip
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < limit
    assert abs(np.corrcoef(order, other)[0, 1]) < limit
