#!/usr/bin/env python
"""What the loss costs as the vocabulary grows: of whole logits, and in chunks of so many rows.

    scripts/bench_loss.py
    scripts/bench_loss.py --device cuda --rows 25000

Forward and backward of the label-smoothed cross-entropy of some rows (positions of the target) of
256 numbers: `translate.training.loss`, which takes 512 rows at once on a CPU and more
on a GPU, beside PyTorch's, which holds the logits of all. Float32 on a CPU, bfloat16 under autocast
on CUDA.

On the CPU the peak is by how much the resident memory of a new process rises at its first run, and
time is CPU time of one thread; on CUDA the peak is that of PyTorch's allocator beyond the inputs,
and time is wall time between synchronisations. Times are the median of several runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from options import positive
from torch import Tensor

from translate.training import loss

D_MODEL, SMOOTHING = 256, 0.1
VOCABULARIES = (8_000, 16_000, 32_000, 64_000)
MEBIBYTE = 2**20


class Cost(NamedTuple):
    """Of one forward and backward pass."""

    mebibytes: float
    milliseconds: float


def chunked(rows: int, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    with mock.patch.object(loss, "rows_at_once", return_value=rows):
        found = loss.projected_loss(hidden, weight, None, targets, loss.CrossEntropy(SMOOTHING))
    return found.smoothed


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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", type=positive, default=4096)
    parser.add_argument("--vocabularies", nargs="+", type=positive, default=list(VOCABULARIES))
    parser.add_argument("--repeats", type=positive, default=3)
    given = parser.parse_args()
    costs = {
        name: [cost(given.device, name, given.rows, v, given.repeats) for v in given.vocabularies]
        for name in LOSSES
    }
    where = torch.cuda.get_device_name() if given.device == "cuda" else "one CPU thread, float32"
    print(f"{where}; {given.rows:,} rows; torch {torch.__version__}, {platform.python_version()}\n")
    for place, unit in enumerate(("peak MiB", "milliseconds")):
        print(f"| {unit} | {' | '.join(f'V = {v:,}' for v in given.vocabularies)} |")
        print("|---" * (1 + len(given.vocabularies)) + "|")
        for name, row in costs.items():
            print(f"| {name} | {' | '.join(f'{cell[place]:,.0f}' for cell in row)} |")
        print()


def cost(device: str, name: str, rows: int, vocabulary: int, repeats: int) -> Cost:
    """On the CPU in a process that does nothing else."""
    if device == "cuda":
        return on_cuda(name, rows, vocabulary, repeats)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "translate.training.loss"])  # once for all cells
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(on_cpu, name, rows, vocabulary, repeats).result()


def inputs(rows: int, vocabulary: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(rows, D_MODEL, device=device, requires_grad=True)
    weight = torch.randn(vocabulary, D_MODEL, device=device).div_(16).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), device=device)


def forward_and_backward(name: str, given: tuple[Tensor, Tensor, Tensor]) -> None:
    torch.autograd.grad(LOSSES[name](*given), given[:2])


def on_cpu(name: str, rows: int, vocabulary: int, repeats: int) -> Cost:
    torch.set_num_threads(1)
    forward_and_backward(name, inputs(8, 16, "cpu"))  # libraries are loaded
    given = inputs(rows, vocabulary, "cpu")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    forward_and_backward(name, given)
    rise = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    times = []
    for _ in range(repeats):
        started = time.process_time()
        forward_and_backward(name, given)
        times.append(time.process_time() - started)
    return Cost(rise * 1024 / MEBIBYTE, 1000 * statistics.median(times))  # kilobytes on Linux


def on_cuda(name: str, rows: int, vocabulary: int, repeats: int) -> Cost:
    given = inputs(rows, vocabulary, "cuda")
    times = []
    with torch.autocast("cuda", torch.bfloat16):
        forward_and_backward(name, given)  # kernels are loaded and chosen
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(repeats):
            started = time.perf_counter()
            forward_and_backward(name, given)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
    rise = torch.cuda.max_memory_allocated() - before
    return Cost(rise / MEBIBYTE, 1000 * statistics.median(times))


if __name__ == "__main__":
    main()
