"""A state is taken apart into named tensors and put together again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from translate.models.state_tensors import tensors_in, with_tensors


@dataclass(frozen=True)
class Leaf:
    keys: Tensor
    used: int


@dataclass(frozen=True)
class Whole:
    leaves: list[Leaf]
    pair: tuple[Tensor, ...]
    nothing: Tensor | None


def test_tensors_are_named_by_the_way_to_them() -> None:
    one, two, three = torch.ones(3).unbind()
    whole = Whole([Leaf(one, 7), Leaf(two, 8)], (three,), None)
    named = tensors_in(whole)
    assert list(named) == ["leaves.0.keys", "leaves.1.keys", "pair.0"]
    assert named["leaves.1.keys"] is two


def test_other_tensors_take_their_places() -> None:
    whole = Whole([Leaf(torch.zeros(1), 7)], (torch.zeros(2),), None)
    others = {"leaves.0.keys": torch.ones(1), "pair.0": torch.ones(2)}
    changed = with_tensors(whole, others)
    assert changed == Whole([Leaf(others["leaves.0.keys"], 7)], (others["pair.0"],), None)
    assert not whole.leaves[0].keys.any()
    with pytest.raises(KeyError, match="pair"):
        with_tensors(whole, {"leaves.0.keys": torch.ones(1)})
