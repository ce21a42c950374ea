"""The byte-wise dropout has the rate, the scale and the gradient of dropout."""

from __future__ import annotations

import pytest
import torch

from translate.models.seq2seq import Dropout, _random_bytes


def test_rate_and_expectation() -> None:
    torch.manual_seed(0)
    x = torch.ones(400_000, requires_grad=True)
    y = Dropout(0.1)(x)
    dropped = (y == 0).float().mean().item()
    assert abs(dropped - 26 / 256) < 0.002  # the nearest rate in 256ths
    torch.testing.assert_close(y[y != 0].unique(), torch.tensor([256 / 230]))
    assert abs(y.mean().item() - 1) < 0.003
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_off_at_inference_and_at_rate_zero() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("rate", [0.001, 0.999])
def test_a_rate_that_no_byte_tells_is_exact(rate: float) -> None:
    torch.manual_seed(0)
    y = Dropout(rate)(torch.ones(400_000))
    assert abs((y == 0).float().mean().item() - rate) < 0.0003
    torch.testing.assert_close(y.max(), torch.tensor(1 / (1 - rate)))


def test_every_byte_is_uniform_whatever_its_place_in_a_draw() -> None:
    torch.manual_seed(0)
    bytes_ = _random_bytes(torch.empty(10_000, 8)).long()
    counts = torch.stack([column.bincount(minlength=256) for column in bytes_.T]).double()
    deviation = (counts - 10_000 / 256) / (10_000 / 256) ** 0.5
    assert deviation.abs().max() < 5
    assert (deviation**2).mean() < 1.2  # χ² over its degrees of freedom
