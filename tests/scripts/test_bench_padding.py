"""The share of padding is counted over both sides."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import numpy as np

from translate.data.batching import TokenBatches


def test_the_share_is_of_the_positions_of_both_sides(
    load_script: Callable[[str], ModuleType],
) -> None:
    source, target, once = np.array([2, 4]), np.array([3, 3]), np.ones(2, dtype=np.float32)
    batches = TokenBatches(source, target, once, tokens_per_batch=8, pool_batches=1, seed=0)
    assert [len(batch) for batch in batches.epoch(0)] == [2]
    feed = SimpleNamespace(batches=lambda: batches)
    assert load_script("bench_padding").padding(feed) == 1 - 12 / 14
