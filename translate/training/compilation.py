"""The model's encoder and decoder as compiled programs (`trainer.compile=true`).

Sizes are symbols in these programs, so that one serves batches of (nearly) every shape; a batch of
one sentence or one word is a case of its own. PyTorch gives up after eight programs for one
function and goes on with Python.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from translate.errors import UserError

log = logging.getLogger(__name__)


class Compiler:
    """torch.compile with symbolic sizes; counts the programs that it made."""

    def __init__(self) -> None:
        from torch._dynamo import lookup_backend  # a second, which only compiling shall cost

        self.programs = 0
        self._inductor = lookup_backend("inductor")

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled when it is called first."""
        return torch.compile(function, dynamic=True, backend=self._compile)

    def _compile(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        started = time.monotonic()
        program = self._inductor(graph, inputs)
        self.programs += 1
        log.info("compiled program %d (%.0f s)", self.programs, time.monotonic() - started)
        return program


def check_compiler() -> None:
    """Compile something small.

    Raises:
        UserError: PyTorch cannot compile on this machine.
    """
    try:
        torch.compile(lambda x: x.sin() + 1, dynamic=True)(torch.ones(3))
    except Exception as error:  # of a dozen kinds, from a missing compiler to missing headers
        reason = str(error).splitlines()[0]
        raise UserError(
            f"trainer.compile = true, but PyTorch cannot compile here ({reason}): install a C++ "
            "compiler and Python's headers (apt-get install g++ python3-dev), or set it to false"
        ) from error
