"""Training or evaluation, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


@contextmanager
def in_mode(model: Module, *, training: bool) -> Iterator[Module]:
    """The model in this mode; afterwards each of its modules is in the mode it was in before."""
    before = {module: module.training for module in model.modules()}
    try:
        yield model.train(training)
    finally:
        for module, mode in before.items():
            module.training = mode
