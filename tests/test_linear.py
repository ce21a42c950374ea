"""The product by oneDNN against PyTorch's own, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from translate import linear
from translate.linear import Linear

needs_onednn = pytest.mark.skipif(not linear.AVAILABLE, reason="PyTorch was built without oneDNN")


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (3, 1, 6), (2, 3, 4, 6), (0, 6)])
def test_value_and_gradients(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(6, 7, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    # in float64, as the truth; transposed, so that what arrives is not contiguous
    exact = [p.detach().double().requires_grad_() for p in (x, *layer.parameters())]
    expected = F.linear(*exact)
    gradient = torch.randn(expected.shape[::-1]).permute(*range(expected.dim())[::-1])
    actual = layer(x)
    torch.testing.assert_close(actual, expected.float())
    ours = torch.autograd.grad(actual, (x, *layer.parameters()), gradient)
    truth = torch.autograd.grad(expected, exact, gradient.double())
    for one, other in zip(ours, truth, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-5, atol=1e-5)


@needs_onednn
def test_it_is_taken_for_training_in_float32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    multiplies = linear.multiplies

    def noted(*args: torch.Tensor) -> bool:
        if multiplies(*args):
            taken.append(1)
        return multiplies(*args)

    monkeypatch.setattr(linear, "multiplies", noted)
    layer, x = Linear(3, 2), torch.randn(4, 3)
    layer(x)
    assert taken
    taken.clear()
    layer.eval()(x)  # rounding must not tell a sentence translated alone from one in a batch
    layer.train().double()(x.double())
    with torch.autocast("cpu", torch.bfloat16):
        layer.float()(x)
    assert not taken
    monkeypatch.setattr(linear, "AVAILABLE", False)
    layer(x)
    assert not taken


def test_what_needs_no_gradient_gets_none() -> None:
    layer = Linear(3, 2)
    layer.weight.requires_grad_(requires_grad=False)
    layer(torch.randn(4, 3)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
