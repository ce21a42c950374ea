from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.segments import by_length, shared_out


@given(st.lists(st.integers(1, 30)), st.integers(1, 60), st.integers(1, 5))
def test_batches_hold_every_item_once_within_the_budget(lengths, budget, workers) -> None:
    alike, shares = list(by_length(lengths, budget)), shared_out(lengths, budget, workers)
    for batches in (alike, shares):
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget
    assert len(shares) <= -(-len(alike) // workers) * workers


@pytest.mark.parametrize(("workers", "count"), [(1, 9), (2, 10), (4, 12), (16, 9)])
def test_workers_get_equal_shares(workers, count) -> None:
    lengths, budget = [8 + i % 13 for i in range(1000)], 1800
    tokens = [sum(lengths[i] for i in batch) for batch in by_length(lengths, budget)]
    assert len(tokens) == 9
    assert min(tokens) < 0.5 * max(tokens)
    shares = [sum(lengths[i] for i in batch) for batch in shared_out(lengths, budget, workers)]
    assert len(shares) == count
    assert workers == 1 or min(shares) > 0.8 * max(shares)
