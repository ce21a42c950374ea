"""torch.compile for training: `trainer.compile`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from translate.errors import UserError, first_line
from translate.models.seq2seq import Decoded
from translate.training.resources import on_gpu
from translate.wording import counted

log = logging.getLogger(__name__)

MOST_PROGRAMS = 32  # of a run; a model that needs more is not read by shape
UNCOMPILED = "set it to false"


def check_compiler(accelerator: str) -> None:
    """Compile something small, where a model will be; UserError where that is impossible."""
    device = "cuda" if on_gpu(accelerator) else "cpu"
    try:
        torch.compile(torch.sin)(torch.ones(3, device=device))
    except Exception as error:  # of a dozen kinds
        raise UserError(
            f"trainer.compile = true, but PyTorch cannot compile here ({first_line(error)}): "
            "install a C++ compiler and Python's headers (apt-get install g++ python3-dev), and "
            f"Triton for a GPU, or {UNCOMPILED}"
        ) from error


class Compiler:
    """A compiler by torch.compile with symbolic batch shapes; it counts the programs it makes.

    Rows and widths of a batch are symbols in a program, so that one serves batches of every shape.
    A batch of one sentence has its own: PyTorch's compiler takes a size of 1 as it is. Attention
    that reads long sentences in blocks has further ones for those.

    Args:
        backend: PyTorch's name of what makes a program of a graph.
    """

    def __init__(self, backend: str) -> None:
        from torch._dynamo import lookup_backend

        torch.compiler.reset()  # what earlier runs of a sweep compiled counts towards the limit
        torch._dynamo.config.recompile_limit = MOST_PROGRAMS
        torch._dynamo.config.optimize_ddp = False  # else cut into a program a bucket of gradients
        self.programs = 0
        self._backend: Callable[..., Any] = lookup_backend(backend)

    def __call__(self, read: Callable[..., Decoded]) -> Callable[..., Decoded]:
        """Return `Seq2Seq.read`, compiled when it is called first; UserError then if impossible."""
        from torch._dynamo import mark_dynamic
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
        from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

        cannot = (FailOnRecompileLimitHit, TorchDynamoException, ConstraintViolationError)

        program = torch.compile(read, fullgraph=True, backend=self._make)

        def compiled(*batch: Tensor, need_alignment: bool) -> Decoded:
            for side in batch:
                mark_dynamic(side, (0, 1))
            try:
                return program(*batch, need_alignment=need_alignment)
            except cannot as error:
                raise UserError(
                    f"trainer.compile = true, but PyTorch cannot compile this model "
                    f"({first_line(error)}): {UNCOMPILED}"
                ) from error

        return compiled

    def account(self) -> str:
        """Say how much was compiled, at the end of a run."""
        return f"trainer.compile: {counted(self.programs, 'program')} read all batches"

    def _make(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.programs += 1
        log.info("compiling program %d", self.programs)
        program: Callable[..., Any] = self._backend(graph, inputs)
        return program
