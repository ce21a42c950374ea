"""What is read of a table in pieces is what stands in it."""

from __future__ import annotations

import math

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data.batching import WIDE, PairLengths, Spread, lengths

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


def test_a_look_at_a_few_pairs_copies_no_column() -> None:
    of_a_batch = PairLengths(table([(4, 9)] * 10_000, 100), max_length=LIMIT)
    before = pyarrow.default_memory_pool()
    counted = pyarrow.proxy_memory_pool(before)
    pyarrow.set_memory_pool(counted)
    try:
        of_a_batch(np.array([7_777, 5]))
    finally:
        pyarrow.set_memory_pool(before)
    assert (counted.max_memory() or 0) < 1_000


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


@pytest.mark.parametrize("rows", [0, 1])
def test_no_places_have_no_tokens(rows: int) -> None:
    whole = table([(3, 4)], 1).slice(0, rows)
    source, target = PairLengths(whole, max_length=LIMIT)(np.zeros(0, dtype=np.int64))
    assert len(source) == len(target) == 0
