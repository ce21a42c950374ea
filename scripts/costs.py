"""Time and peak memory of a computation: on the CPU in a process of its own, or on CUDA.

On the CPU time is CPU time of one thread, in which other jobs do not count, and the peak is by how
much the resident memory of a new process rises at its first run. On CUDA time is wall time between
synchronisations, and the peak is that of PyTorch's allocator beyond the inputs. Times are the
median of several runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch
from options import peak_memory, positive

MEBIBYTE = 2**20

Prepare = Callable[..., Callable[[], object]]


class Cost(NamedTuple):
    """Of one run."""

    milliseconds: float
    mebibytes: float


def device(text: str) -> str:
    """The CPU, or a GPU that is there."""
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text}: choose cpu or cuda")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("cuda: PyTorch finds no CUDA device here")
    return text


def add_options(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    """Where to measure, and how often."""
    parser.add_argument("--device", type=device, default="cpu", help="cpu or cuda; default: cpu")
    parser.add_argument(
        "--repeats", type=positive, default=repeats, help=f"runs per median; default: {repeats}"
    )


def description(device: str) -> str:
    """Where the figures were taken."""
    where = "one CPU thread, float32"
    if device == "cuda":
        where = f"{torch.cuda.get_device_name()}, bfloat16"
    return f"{where}; torch {torch.__version__}, Python {platform.python_version()}"


def cost(
    prepare: Prepare, inputs: tuple[Any, ...], small: tuple[Any, ...], *, device: str, repeats: int
) -> Cost:
    """Of what `prepare(device, *inputs)` returns to be run; `small` is enough to load libraries."""
    if device == "cuda":
        return on_cuda(prepare, inputs, repeats)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the new process imports torch
    context = multiprocessing.get_context("forkserver")
    imported_once = ["torch", "translate.models.transformer", "translate.training.objectives"]
    context.set_forkserver_preload(imported_once)
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(on_cpu, prepare, inputs, small, repeats).result()


def on_cpu(prepare: Prepare, inputs: tuple[Any, ...], small: tuple[Any, ...], repeats: int) -> Cost:
    torch.set_num_threads(1)
    prepare("cpu", *small)()
    run = prepare("cpu", *inputs)
    before = peak_memory()
    run()
    rise = peak_memory() - before
    times = []
    for _ in range(repeats):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return Cost(1000 * statistics.median(times), rise / MEBIBYTE)


def on_cuda(prepare: Prepare, inputs: tuple[Any, ...], repeats: int) -> Cost:
    run = prepare("cuda", *inputs)
    for _ in range(3):  # kernels are loaded and chosen
        run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    rise = torch.cuda.max_memory_allocated() - before
    return Cost(1000 * statistics.median(times), rise / MEBIBYTE)
