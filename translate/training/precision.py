"""Which number format a machine trains fastest in."""

from __future__ import annotations

from functools import partial
from timeit import timeit
from typing import Literal, cast, get_args

import torch
import torch.nn.functional as F

from translate.errors import UserError
from translate.machine import threads_restored
from translate.training.accelerator import on_gpu
from translate.training.launch import started_together

Precision = Literal["32-true", "tf32", "bf16-mixed", "16-mixed", "64-true"]
ROUNDS = 12  # of a trial
PAYS = 1.5  # times as fast: a step has other work beside products, and casts its numbers
ON_GPUS = ("tf32", "16-mixed")  # CPUs have no such products, or none that is faster


def settled(
    asked: Literal["auto", Precision], accelerator: str, *, nodes: int = 1, noted: object = None
) -> Precision:
    """What a run multiplies in; `auto` is what this machine trains faster in, bf16 or float32.

    Args:
        noted: what the run, or its first process, has found before: part of the run, as its batches
            are, so that it goes on in the same numbers on whatever machine.

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


def check_precision(precision: Literal["auto", Precision], accelerator: str) -> None:
    """UserError where a precision needs a GPU and there is none; Lightning would take another."""
    if precision in ON_GPUS and not on_gpu(accelerator):
        where = "trainer.accelerator=cpu" if accelerator == "cpu" else "this machine has none"
        raise UserError(
            f"trainer.precision = {precision} needs an NVIDIA GPU, but {where}: choose "
            "bf16-mixed, 32-true or auto"
        )


def lightning_name(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]:
    """What Lightning calls it; tf32 is float32 multiplied by other means (`multiply_in`)."""
    return "32-true" if precision == "tf32" else precision


def multiply_in(precision: Literal["auto", Precision]) -> None:
    """Let GPUs round the factors of float32 products to 10 bits (TensorFloat-32), or not."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """What a mixed precision multiplies in; None where that is the dtype of the weights."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)


def _cpu_has_bf16() -> bool:
    capability = torch.backends.cpu.get_cpu_capability
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "AVX512" in capability() and bool(native())


def products_in_bf16() -> float:
    """How many times as fast as in float32 this CPU multiplies in bf16, by a trial.

    No flag tells: with AVX512-BF16 and no AMX, an AMD EPYC (Zen 4) multiplies 2.5 times as fast and
    an Intel Xeon (Sapphire Rapids) 0.6 times (docs/benchmarks/training.md).

    Other jobs on the machine shall not decide: one thread needs no second core at the same moment,
    and products that take turns meet the same of them.
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
