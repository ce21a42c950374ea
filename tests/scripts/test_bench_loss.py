"""What is compared is one loss, held in several ways."""

from __future__ import annotations

import sys
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


def test_a_table_has_a_row_a_loss(
    load_script: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench, costs = load_script("bench_loss"), load_script("costs")
    monkeypatch.setattr(  # no process for each
        bench, "cost", lambda prepare, given, small, **_: costs.on_cpu(prepare, given, small, 1)
    )
    given = ["--rows", "8", "--vocabularies", "50", "1000"]
    monkeypatch.setattr(sys, "argv", ["bench_loss.py", *given])
    bench.main()
    memory, times = capsys.readouterr().out.strip().split("\n\n")[1:]
    assert memory.splitlines()[0] == "| peak MiB | V = 50 | V = 1,000 |"
    for table in (memory, times):
        rows = [line.split(" | ")[0] for line in table.splitlines()[2:]]
        assert rows == [f"| {name}" for name in bench.LOSSES]
