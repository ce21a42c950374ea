"""The resources of a run: device, number format, packing.

Where the configuration says `auto`, what it stands for is found here once. It is then part of the
run, as its batches are, so that a run that goes on computes the same.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from timeit import timeit
from typing import Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import nn

from translate.errors import UserError
from translate.machine import threads_restored
from translate.models.seq2seq import Seq2Seq
from translate.training.launch import started_together
from translate.training.settings import Precision, TrainerConfig

log = logging.getLogger(__name__)

# number formats
ROUNDS = 12  # of a trial
PAYS = 1.5  # times as fast: a step has other work beside products, and casts its numbers
HALF = ("bf16-mixed", "16-mixed")  # what flash attention computes in

# packing
AMPERE = (8, 0)  # compute capability
ALL, NONE = 0, sys.maxsize
# tokens of a batch's longest sentence: flash computes tiles of 128 queries, which shorter sentences
# leave half empty (docs/benchmarks/gpu.md)
LONG = 128

MOMENTS = 2  # AdamW keeps two numbers a parameter


def on_gpu(accelerator: str) -> bool:
    """Tell whether a run trains on an NVIDIA GPU: `auto` takes one if there is one."""
    return accelerator != "cpu" and torch.cuda.is_available()


def out_of_memory(error: Exception) -> bool:
    """Tell whether memory was too little: of a GPU, of Python or of PyTorch on a CPU."""
    full = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return full or "can't allocate memory" in str(error)


def devices(config: TrainerConfig) -> int:
    """Return how many processes train on each machine."""
    if config.devices == "auto":
        # as Lightning counts
        return torch.cuda.device_count() if on_gpu(config.accelerator) else 1
    return config.devices


def processes(config: TrainerConfig) -> int:
    """Return how many processes train together."""
    return config.num_nodes * devices(config)


def bytes_of(model: nn.Module) -> int:
    """Return the bytes that the weights take."""
    return sum(p.nbytes for p in model.parameters())


def chosen_precision(
    asked: Literal["auto", Precision], accelerator: str, *, nodes: int = 1, noted: object = None
) -> Precision:
    """Return what a run multiplies in; `auto` is what this machine trains faster in.

    Args:
        noted: what the run, or its first process, has found before.

    Processes that were started at once have no first one to ask: on CPUs they take float32.
    """
    if asked != "auto":
        return asked
    if noted in get_args(Precision):
        return cast(Precision, noted)
    if on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = started_together(nodes) == 1 and _cpu_has_bf16() and products_in_bf16() >= PAYS
    return "bf16-mixed" if fast else "32-true"


def lightning_name(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]:
    """Return Lightning's name; tf32 is float32 multiplied by other means (`multiply_in`)."""
    return "32-true" if precision == "tf32" else precision


def multiply_in(precision: Literal["auto", Precision]) -> None:
    """Let GPUs round factors of float32 products to 10 bits with tf32; else multiply exactly."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """Return what a mixed precision multiplies in; None where that is the dtype of the weights."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)


def _cpu_has_bf16() -> bool:
    capability = torch.backends.cpu.get_cpu_capability
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "AVX512" in capability() and bool(native())


def products_in_bf16() -> float:
    """Measure how many times as fast as in float32 this CPU multiplies in bf16.

    No flag tells: with AVX512-BF16 and no AMX, an AMD EPYC (Zen 4) multiplies 2.5 times as fast and
    an Intel Xeon (Sapphire Rapids) 0.6 times (docs/benchmarks/training.md). One thread, and
    products that take turns, so that other jobs on the machine do not decide.
    """
    products = {
        dtype: partial(F.linear, *(torch.ones(1024, 256, dtype=dtype) for _ in range(2)))
        for dtype in (torch.float32, torch.bfloat16)
    }
    with threads_restored():
        torch.set_num_threads(1)
        rounds = [
            [timeit(product, number=1) for product in products.values()] for _ in range(ROUNDS)
        ]
    wide, narrow = (min(seconds[i] for seconds in rounds) for i in range(2))
    return wide / narrow


def packed_from(
    choice: Literal["auto", "on", "off"],
    model: Seq2Seq,
    *,
    accelerator: str,
    precision: Precision,
    guided: bool,
    compiled: bool,
) -> int:
    """Return from how many tokens of its longest sentence on a batch is packed.

    For `auto` where flash attention takes packed sentences, in batches of long ones. On a CPU
    attention takes them one by one, which costs more than the few per cent of padding.

    Raises:
        UserError: `on`, and something of the run needs padded batches.
    """
    flash = on_gpu(accelerator) and precision in HALF
    obstacle = model.why_padded
    if compiled:
        obstacle = "trainer.compile compiles programs for padded batches"
    elif guided:
        obstacle = "trainer.guided_alignment needs weights, which flash attention never computes"
    elif obstacle is None and flash and torch.cuda.get_device_capability() < AMPERE:
        obstacle = "flash attention needs a GPU of NVIDIA's Ampere generation or later"
    if choice == "on" and obstacle:
        raise UserError(f"trainer.packing = on, but {obstacle}: choose auto or off")
    if choice != "auto":
        return ALL if choice == "on" else NONE
    if obstacle is None and not flash:
        obstacle = "flash attention computes in 16 bits on a GPU"
    packed = f"packed, without padding, in batches whose longest sentence has {LONG} tokens or more"
    log.info("sentences are %s", f"padded: {obstacle}" if obstacle else packed)
    return LONG if obstacle is None else NONE
