"""The shapes that are written beside tensors are checked in these tests."""

from __future__ import annotations

from typing import Protocol, Self

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from checked_shapes import checked
from jaxtyping import Float
from torch import Tensor

from translate.attention.cache import KeysValues, KeyValueCache
from translate.attention.masks import padding_mask
from translate.models.rnn import RNNMemory
from translate.search.scoring import coverage_penalty


class Plain(Protocol):
    """What beartype cannot check."""


class Doubled:
    @checked
    def itself(self, x: Float[Tensor, "N"]) -> Self:  # noqa: F821
        return self

    @checked
    def beside(self, what: Plain, x: Float[Tensor, "N"]) -> Float[Tensor, "N 2"]:  # noqa: F821
        return torch.stack([x, x], 0 if len(x) == 3 else 1)


def refused() -> pytest.RaisesExc[BeartypeCallHintViolation]:
    return pytest.raises(BeartypeCallHintViolation)


def test_types_sizes_and_fields_are_checked() -> None:
    with refused():
        padding_mask(torch.ones(2), 3)  # no integers
    with refused():
        padding_mask(torch.ones(2, 2).long(), 3)  # a dimension too many
    with refused():  # S is 3 and 4
        coverage_penalty(torch.ones(2, 3), torch.ones(2, 4).bool(), 1.0)
    with refused():
        KeysValues(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 5, 4))
    with refused():  # inherited from another module
        RNNMemory(torch.ones(2, 3, 4), torch.ones(2, 3), None, None, torch.ones(1, 2, 4))


def test_what_is_returned_is_checked() -> None:
    assert Doubled().beside(None, torch.ones(2)).shape == (2, 2)
    with refused():
        Doubled().beside(None, torch.ones(3))


def test_a_hint_that_cannot_be_checked_leaves_the_others() -> None:
    with refused():
        KeyValueCache.empty(1, 1, 2, torch.ones(1)).select(torch.ones(2, 2))  # returns Self
    with refused():
        Doubled().itself(torch.ones(2, 2))
    with refused():
        Doubled().beside(None, torch.ones(2, 2))


@pytest.mark.unchecked
def test_checks_can_be_turned_off() -> None:
    assert Doubled().beside(None, torch.ones(3)).shape == (2, 3)
