"""The chunked loss against PyTorch's cross-entropy over whole logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from translate.training import loss as module
from translate.training.loss import projected_cross_entropy


def inputs(rows: int, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 6, dtype=torch.float64, generator=generator)
    weight = torch.randn(9, 6, dtype=torch.float64, generator=generator)
    b = torch.randn(9, dtype=torch.float64, generator=generator) if bias else None
    targets = torch.randint(9, (rows,), generator=generator)
    return hidden, weight, b, targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_value_and_gradients_equal_pytorchs(
    smoothing: float, bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", 4)  # several chunks, the last one short
    hidden, weight, b, targets = inputs(rows, bias)
    learned = [x.requires_grad_() for x in (hidden, weight, b) if x is not None]
    ours = projected_cross_entropy(hidden, weight, b, targets, smoothing=smoothing)
    logits = F.linear(hidden, weight, b)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.smoothed, theirs)
    torch.testing.assert_close(ours.nll, F.cross_entropy(logits, targets, reduction="sum"))
    expected = torch.autograd.grad(theirs / rows, learned)
    actual = torch.autograd.grad(ours.smoothed / rows, learned)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_bf16_autocast_stays_near_float32() -> None:
    hidden, weight, _, targets = inputs(16, bias=False)
    hidden, weight = hidden.float().requires_grad_(), weight.float().requires_grad_()
    exact = projected_cross_entropy(hidden, weight, None, targets, smoothing=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = projected_cross_entropy(hidden, weight, None, targets, smoothing=0.1)
    torch.testing.assert_close(rounded.smoothed, exact.smoothed, rtol=1e-2, atol=0)
    assert rounded.smoothed.dtype == torch.float32
    for one, other in zip(
        torch.autograd.grad(rounded.smoothed, (hidden, weight)),
        torch.autograd.grad(exact.smoothed, (hidden, weight)),
        strict=True,
    ):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.01 * other.norm()


def test_without_gradients_only_the_value_is_computed() -> None:
    hidden, weight, b, targets = inputs(5, bias=True)
    with torch.inference_mode():
        losses = projected_cross_entropy(hidden, weight, b, targets, smoothing=0.0)
    assert not losses.smoothed.requires_grad
    torch.testing.assert_close(losses.smoothed, losses.nll)
