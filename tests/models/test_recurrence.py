"""A token by weights that are laid out beforehand, against PyTorch's own cells."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from translate import linear
from translate.models.recurrence import RecurrentState, StepwiseRecurrence

pytestmark = pytest.mark.skipif(not linear.AVAILABLE, reason="PyTorch was built without oneDNN")


@pytest.fixture(params=["gru", "lstm"])
def recurrence(request: pytest.FixtureRequest) -> StepwiseRecurrence:
    torch.manual_seed(0)
    return StepwiseRecurrence(
        cell=request.param, input_size=12, hidden_size=16, num_layers=2, dropout=0.0
    ).eval()


def before(recurrence: StepwiseRecurrence, rows: int) -> tuple[Tensor, RecurrentState]:
    """A token of each row, and what was read before it."""
    shape = (len(recurrence.layers), rows, recurrence.hidden_size)
    state = tuple(torch.randn(shape) for _ in range(recurrence.num_states))
    return torch.randn(rows, 1, 12), state


def halves(recurrence: StepwiseRecurrence) -> None:
    """Copies that hold something else than the weights tell who reads them."""
    for key, prepacked in recurrence._prepacked.items():
        layout = torch.ops.mkldnn._reorder_linear_weight(prepacked.origin.detach() / 2, 64)
        recurrence._prepacked[key] = replace(prepacked, layout=layout)


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 5, 16, 37])
def test_a_token_is_read_as_by_pytorchs_cell(recurrence: StepwiseRecurrence, rows: int) -> None:
    x, state = before(recurrence, rows)
    own = copy.deepcopy(recurrence)
    recurrence.prepack()
    assert len(recurrence._prepacked) == 4
    for found, expected in zip(flat(recurrence(x, state)), flat(own(x, state)), strict=True):
        torch.testing.assert_close(found, expected)
    halves(recurrence)
    assert not torch.allclose(recurrence(x, state)[0], own(x, state)[0])


def flat(read: tuple[Tensor, RecurrentState]) -> list[Tensor]:
    return [read[0], *read[1]]


@torch.no_grad()
def test_a_row_is_the_same_among_any_others(recurrence: StepwiseRecurrence) -> None:
    x, state = before(recurrence, 40)
    recurrence.prepack()
    together, _ = recurrence(x, state)
    for rows in (1, 3, 16, 23):
        alone, _ = recurrence(x[:rows], tuple(part[:, :rows] for part in state))
        assert torch.equal(alone, together[:rows])


def test_what_a_copy_cannot_do_is_done_without_it(recurrence: StepwiseRecurrence) -> None:
    """A gradient, whole sequences, another type, and weights that have changed."""
    x, state = before(recurrence, 3)
    expected = recurrence(x, state)[0]
    longer = recurrence(x.expand(-1, 2, -1), state)[0].detach()
    recurrence.prepack()
    halves(recurrence)
    torch.testing.assert_close(recurrence(x, state)[0], expected)
    with torch.no_grad():
        torch.testing.assert_close(recurrence(x.expand(-1, 2, -1), state)[0], longer)
        other = copy.deepcopy(recurrence)
        changed = {name: 2 * weight for name, weight in recurrence.state_dict().items()}
        for one in (recurrence, other):
            one.load_state_dict(changed, assign=one is recurrence)
        torch.testing.assert_close(recurrence(x, state)[0], other(x, state)[0])
        recurrence.prepack()
        recurrence.double()
        assert recurrence(x.double(), tuple(part.double() for part in state))[0].isfinite().all()
