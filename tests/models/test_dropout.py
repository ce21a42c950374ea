"""The byte-wise dropout has the rate, the scale and the gradient of dropout."""

from __future__ import annotations

import torch

from translate.models.dropout import Dropout


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
