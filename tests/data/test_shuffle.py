"""An order that is computed is a permutation, and no permutation is likelier than another."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data.batching import shuffled


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


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_permutations_of_a_few_are_as_likely(size: int) -> None:
    """Chi-squared of 50 draws of each permutation; chance passes a limit once in a thousand."""
    count = math.factorial(size)
    found = Counter(
        tuple(shuffled(np.arange(size), size, (seed, 0)).tolist()) for seed in range(50 * count)
    )
    excess = sum((found[order] - 50) ** 2 / 50 for order in itertools.permutations(range(size))) / (
        count - 1
    )
    assert excess < (11 if size == 2 else 4 if size == 3 else 2.2 if size == 4 else 1.5)


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
