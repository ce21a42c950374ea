"""What averaging averages, followed step by step by a slow twin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn

from translate.training.averaging import AveragedWeights
from translate.training.settings import AveragingConfig

WEIGHTS = [3.0, -1.0, 4.0, 1.5, -5.0, 9.0, 2.0, 6.0, -5.5, 3.5, 8.0, -9.0]  # after each step


class OneWeight(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))


def averaging(total_steps: int, *, every: int = 1, decay: float = 0.999, **options: Any) -> Any:
    return AveragedWeights(
        AveragingConfig(every=every, decay=decay, **options), total_steps=total_steps
    )


def after(averaged: AveragedWeights, module: OneWeight, steps: range) -> list[float]:
    """The average after each of the steps, of the weight that is validated."""
    found = []
    for step in steps:
        with torch.no_grad():
            module.weight.fill_(WEIGHTS[step])
        for batch in (0, 1):
            trainer: Any = SimpleNamespace(global_step=step + batch, accumulate_grad_batches=2)
            averaged.on_train_batch_end(trainer, module, None, None, 2 * step + batch)
        averaged.on_validation_start(trainer, module)
        found.append(float(module.weight.detach()))
        averaged.on_validation_epoch_end(trainer, module)
        assert float(module.weight.detach()) == WEIGHTS[step]
    return found


def slow(kind: str, decay: float, first: int, every: int) -> list[float]:
    taken: list[float] = []
    found = []
    for step, weight in enumerate(WEIGHTS):
        if step >= first and (step - first) % every == 0:
            taken.append(weight)
        if not taken:
            found.append(weight)  # nothing is averaged yet
        elif kind == "last":
            found.append(sum(taken) / len(taken))
        else:
            average = taken[0]
            for n, each in enumerate(taken[1:], start=1):
                share = min(decay, (1 + n) / (10 + n))
                average = share * average + (1 - share) * each
            found.append(average)
    return found


@pytest.mark.parametrize("kind", ["ema", "last"])
@pytest.mark.parametrize(("start", "every"), [(0.0, 1), (0.0, 5), (0.25, 2)])
@pytest.mark.parametrize("decay", [0.2, 0.999])  # the one binds at once, the other never here
def test_the_average_is_the_twins(kind: str, start: float, every: int, decay: float) -> None:
    averaged = averaging(len(WEIGHTS), kind=kind, start=start, every=every, decay=decay)
    found = after(averaged, OneWeight(), range(len(WEIGHTS)))
    assert found == pytest.approx(slow(kind, decay, int(start * len(WEIGHTS)), every))


@pytest.mark.parametrize(("kind", "first"), [("ema", 0), ("last", 9)])
def test_a_mean_leaves_the_random_beginning_out_unless_it_is_asked_for(
    kind: str, first: int
) -> None:
    averaged = averaging(len(WEIGHTS), kind=kind, start=None, every=2)
    found = after(averaged, OneWeight(), range(len(WEIGHTS)))
    assert found == pytest.approx(slow(kind, 0.999, first, every=2))


def test_an_average_that_has_begun_goes_on_in_a_longer_run() -> None:
    short, long = (averaging(steps, kind="last", start=0.5) for steps in (4, 12))
    trainer: Any = SimpleNamespace(is_global_zero=True)
    module, saved = OneWeight(), {}
    after(short, module, range(4))
    short.on_save_checkpoint(trainer, module, saved)
    long.on_load_checkpoint(trainer, module, saved)
    long.load_state_dict(short.state_dict())
    taken = WEIGHTS[2:]
    expected = [sum(taken[:n]) / n for n in range(3, len(taken) + 1)]
    assert after(long, module, range(4, 12)) == pytest.approx(expected)
