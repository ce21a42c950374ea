"""A program: the model of a configuration, eager and compiled, on batches of many shapes.

In a process of its own, for the tests put code around every function that checks shapes, which a
compiler would have to compile too. It prints how many programs were made.

    compiled_and_eager.py CONFIGURATION BACKEND TOLERANCE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from translate.attention.masks import padding_mask
from translate.data.batching import Batch, collate
from translate.extras.compilation import Compiler
from translate.models import registry
from translate.models.seq2seq import Seq2Seq

SHAPES = ((5, 11), (3, 20), (9, 4), (1, 6), (7, 7), (1, 40))


def batch(rows: int, longest: int) -> Batch:
    random = np.random.default_rng((rows, longest))
    sides = [
        [
            random.integers(4, 50, size=random.integers(1, longest + 1)).astype(np.int32)
            for _ in range(rows)
        ]
        for _ in range(2)
    ]
    return collate(list(range(rows)), *sides)


def losses(model: Seq2Seq, read: Callable[..., Any], of: Batch) -> list[Tensor]:
    """The loss, and all gradients."""
    target_mask = padding_mask(of.target_lengths, of.target_in.shape[1])
    decoded = read(
        of.source, padding_mask(of.source_lengths, of.source.shape[1]),
        of.target_in, need_alignment=False,
    )  # fmt: skip
    loss = F.cross_entropy(
        model.project(decoded.hidden[target_mask]), of.target_out[target_mask], reduction="sum"
    )
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def main(configuration: str, backend: str, tolerance: str) -> None:
    config = json.loads(configuration)
    torch.manual_seed(0)
    model = registry.build(config["model"], source_vocab_size=50, target_vocab_size=50).train()
    model.recompute = config["trainer"]["activation_checkpointing"]
    compiler = Compiler(backend)
    compiled = compiler(model.read)
    for shape in SHAPES:
        of = batch(*shape)
        for ours, eager in zip(
            losses(model, compiled, of), losses(model, model.read, of), strict=True
        ):
            torch.testing.assert_close(ours, eager, rtol=float(tolerance), atol=float(tolerance))
    sys.stdout.write(f"{compiler.programs}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
