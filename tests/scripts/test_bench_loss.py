"""What is compared is one loss, held in several ways."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch


def test_all_losses_are_the_same(load_script: Callable[[str], ModuleType]) -> None:
    bench = load_script("bench_loss")
    hidden, weight, targets = bench.inputs(700, 50, "cpu")  # more than a chunk
    (whole, *theirs), *others = (
        (value, *torch.autograd.grad(value, (hidden, weight)))
        for value in (loss(hidden, weight, targets) for loss in bench.LOSSES.values())
    )
    assert len(others) > 1
    for chunked, *ours in others:
        assert chunked.item() == pytest.approx(whole.item(), rel=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert bench.on_cpu("512 rows", 8, 50, 1).milliseconds > 0
