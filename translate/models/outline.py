"""Models without memory: how large one is, and what its weights are called, before it is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def shapes_only() -> Iterator[None]:
    """A model that is built meanwhile has names and shapes only; no random number is drawn."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Leaves weights without memory alone: to draw such, PyTorch loads its compiler, a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0]
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)
