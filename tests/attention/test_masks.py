"""Every mask, position by position, against its definition in words."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from translate.attention.masks import (
    added_to_scores,
    both,
    causal_mask,
    fixed_mask,
    over_keys,
    padding_mask,
    sliding_window_mask,
    strided_mask,
    window_around,
)

sizes = st.integers(1, 6)
places = st.lists(st.integers(0, 12), min_size=1, max_size=6).map(torch.tensor)


def test_padding_is_what_follows_the_last_token() -> None:
    mask = padding_mask(torch.tensor([3, 0, 2, 4]), 4)
    assert mask.tolist() == [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert mask.dtype == torch.bool
    assert torch.equal(over_keys(mask)[:, 0, 0], mask)


def test_a_query_sees_itself_and_what_came_before() -> None:
    mask = causal_mask(3)
    assert mask.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask.dtype == torch.bool


def test_what_is_hidden_gets_minus_infinity() -> None:
    mask = added_to_scores(torch.tensor([[True, False]]), torch.bfloat16)
    assert mask.dtype == torch.bfloat16
    assert mask.tolist() == [[0, -math.inf]]


def test_both_masks_let_through_and_none_is_all() -> None:
    one, other = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    combined = both(one, other)
    assert combined is not None
    assert combined.tolist() == [True, False, False, False]
    assert both(one, None) is one
    assert both(None, other) is other
    assert both(None, None) is None


@given(centre=st.floats(-3, 9), width=sizes, radius=st.integers(0, 4))
def test_a_window_reaches_so_far_on_either_side(centre: float, width: int, radius: int) -> None:
    mask = window_around(torch.tensor([[centre]], dtype=torch.float64), width, radius)
    assert mask.tolist() == [[[abs(s - centre) <= radius for s in range(width)]]]


def seen(mask: Tensor) -> list[list[bool]]:
    assert mask.dtype == torch.bool
    return [[bool(key) for key in query] for query in mask]


@given(queries=places, keys=places, left=sizes, right=sizes)
def test_a_sliding_window(queries: Tensor, keys: Tensor, left: int, right: int) -> None:
    mask = sliding_window_mask(queries[:, None], keys, left=left, right=right)
    assert seen(mask) == [
        [i - left <= j <= i + right for j in keys.tolist()] for i in queries.tolist()
    ]


@given(queries=places, keys=places, stride=sizes)
def test_strided(queries: Tensor, keys: Tensor, stride: int) -> None:
    expected = [
        [abs(i - j) <= stride or (i - j) % stride == 0 for j in keys.tolist()]
        for i in queries.tolist()
    ]
    assert seen(strided_mask(queries[:, None], keys, stride=stride)) == expected


@given(queries=places, keys=places, stride=sizes, summary=sizes)
def test_fixed(queries: Tensor, keys: Tensor, stride: int, summary: int) -> None:
    mask = fixed_mask(queries[:, None], keys, stride=stride, summary=summary)
    expected = [
        [i // stride == j // stride or j % stride >= stride - summary for j in keys.tolist()]
        for i in queries.tolist()
    ]
    assert seen(mask) == expected
