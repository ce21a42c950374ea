"""What tests of training do to a run, and read of it."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from translate.training.step import TranslationTask


def column(run: Path, name: str) -> dict[int, str]:
    """Of metrics.csv: step → the text of a cell, where there is one."""
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return {int(row["step"]): row[name] for row in csv.DictReader(file) if row.get(name)}


def numbers(run: Path, name: str) -> list[float]:
    return [*map(float, column(run, name).values())]


@contextmanager
def before_step(action: Callable[[TranslationTask, Any, int], object]) -> Iterator[None]:
    """Call `action(task, batch, step)` before each batch is learned from, steps from 0."""
    original = TranslationTask.training_step

    def training_step(self: TranslationTask, batch: Any, batch_idx: int) -> Any:
        action(self, batch, batch_idx)
        return original(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationTask, "training_step", training_step)
        yield


def signalled(step: int, number: int) -> Any:
    """The process signals itself while it takes a step."""

    def signal_at(task: TranslationTask, batch: Any, index: int) -> None:
        if index == step:
            os.kill(os.getpid(), number)

    return before_step(signal_at)
