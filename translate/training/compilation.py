"""How a model reads a batch, as a compiled program (`trainer.compile=true`).

Rows and widths of a batch are symbols in a program, so that one serves batches of every shape; a
batch of one sentence has a program of its own, for PyTorch's compiler takes a size of 1 as it is.
Attention that reads long sentences in blocks has further ones for those.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from translate.errors import UserError, first_line
from translate.models.seq2seq import Decoded
from translate.training.accelerator import on_gpu
from translate.wording import counted

log = logging.getLogger(__name__)

Read = Callable[..., Decoded]  # as `Seq2Seq.read`
REMEDY = "set it to false"
MOST = 32  # programs of a run; a model that needs more is not read by shape


class Compiler:
    """torch.compile with symbolic batch shapes; counts the programs that it makes.

    Args:
        backend: PyTorch's name of what makes a program of a graph.
    """

    def __init__(self, backend: str) -> None:
        from torch._dynamo import lookup_backend

        torch.compiler.reset()  # what earlier runs of a sweep compiled counts towards the limit
        torch._dynamo.config.recompile_limit = MOST
        torch._dynamo.config.optimize_ddp = False  # else cut into a program a bucket of gradients
        self.programs = 0
        self._backend: Callable[..., Any] = lookup_backend(backend)

    def __call__(self, read: Read) -> Read:
        """`read`, compiled when it is called first; UserError then if it cannot be."""
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
                    f"({first_line(error)}): {REMEDY}"
                ) from error

        return compiled

    def account(self) -> str:
        """What was compiled, told at the end of a run."""
        return f"trainer.compile: {counted(self.programs, 'program')} read all batches"

    def _make(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.programs += 1
        log.info("compiling program %d", self.programs)
        program: Callable[..., Any] = self._backend(graph, inputs)
        return program


def check_compiler(accelerator: str) -> None:
    """Compile something small, where a model will be.

    Raises:
        UserError: PyTorch cannot compile on this machine.
    """
    device = "cuda" if on_gpu(accelerator) else "cpu"
    try:
        torch.compile(torch.sin)(torch.ones(3, device=device))
    except Exception as error:  # of a dozen kinds, from a missing compiler to missing headers
        raise UserError(
            f"trainer.compile = true, but PyTorch cannot compile here ({first_line(error)}): "
            "install a C++ compiler and Python's headers (apt-get install g++ python3-dev), and "
            f"Triton for a GPU, or {REMEDY}"
        ) from error
