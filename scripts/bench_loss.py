#!/usr/bin/env python
"""What the loss costs as the vocabulary grows: of whole logits, and in chunks of so many rows.

    scripts/bench_loss.py
    scripts/bench_loss.py --device cuda --rows 25000

Forward and backward of the label-smoothed cross-entropy of some rows (positions of the target) of
256 numbers: `translate.training.objectives`, which takes 512 rows at once on a CPU and more on a
GPU, beside PyTorch's, which holds the logits of all. Float32 on a CPU, bfloat16 under autocast on
CUDA.
scripts/costs.py says how time and memory are measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F
from costs import add_options, cost, description
from options import begin, positive
from torch import Tensor

from translate.training import objectives

D_MODEL, SMOOTHING = 256, 0.1
VOCABULARIES = (8_000, 16_000, 32_000, 64_000)


def chunked(rows: int, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    with mock.patch.object(objectives, "rows_at_once", return_value=rows):
        criterion = objectives.CrossEntropy(SMOOTHING)
        loss = objectives.projected_loss(hidden, weight, None, targets, criterion)
    return loss.smoothed


def whole(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits, targets, label_smoothing=SMOOTHING, reduction="sum")


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "whole logits": whole,
    **{f"{rows:,} rows": partial(chunked, rows) for rows in (512, 2048, 8192)},
}


def main() -> None:
    """Print a row for each loss, memory first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, repeats=3)
    parser.add_argument("--rows", type=positive, default=4096)
    parser.add_argument("--vocabularies", nargs="+", type=positive, default=list(VOCABULARIES))
    args = parser.parse_args()
    costs = {
        name: [
            cost(
                prepared, (name, args.rows, vocabulary), (name, 8, 16),
                device=args.device, repeats=args.repeats,
            )
            for vocabulary in args.vocabularies
        ]
        for name in LOSSES
    }  # fmt: skip
    print(f"{description(args.device)}; {args.rows:,} rows; median of {args.repeats}\n")
    for unit, field in (("peak MiB", "mebibytes"), ("milliseconds", "milliseconds")):
        print(f"| {unit} | {' | '.join(f'V = {v:,}' for v in args.vocabularies)} |")
        print("|---" * (1 + len(args.vocabularies)) + "|")
        for name, row in costs.items():
            print(f"| {name} | {' | '.join(f'{getattr(cell, field):,.0f}' for cell in row)} |")
        print()


def prepared(device: str, name: str, rows: int, vocabulary: int) -> Callable[[], None]:
    """A loss of this size, to be run forward and backward."""
    return partial(forward_and_backward, name, inputs(rows, vocabulary, device))


def inputs(rows: int, vocabulary: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(rows, D_MODEL, device=device, requires_grad=True)
    weight = torch.randn(vocabulary, D_MODEL, device=device).div_(16).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), device=device)


def forward_and_backward(name: str, tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    with torch.autocast("cuda", torch.bfloat16, enabled=tensors[0].is_cuda):
        torch.autograd.grad(LOSSES[name](*tensors), tensors[:2])


if __name__ == "__main__":
    begin(main)
