"""Which number format a machine trains fastest in."""

from __future__ import annotations

from typing import Literal

import torch

from translate.errors import UserError
from translate.training.accelerator import on_gpu

Precision = Literal["32-true", "tf32", "bf16-mixed", "16-mixed", "64-true"]
ON_GPUS = ("tf32", "16-mixed")  # CPUs have no such products, or none that is faster


def settle(precision: Precision | Literal["auto"], accelerator: str) -> Precision:
    """Lightning's name of a precision; `auto` takes bf16 where the machine multiplies it natively.

    On CPUs with AVX512-BF16 or AMX a step of the default Transformer is about 1.6 times as fast in
    bf16 as in float32 (docs/benchmarks/training.md); recurrences stay in float32 by themselves.
    """
    if precision != "auto":
        return precision
    if on_gpu(accelerator):
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = _cpu_multiplies_bf16()
    return "bf16-mixed" if native else "32-true"


def check_precision(precision: Precision | Literal["auto"], accelerator: str) -> None:
    """UserError where a precision needs a GPU and there is none; Lightning would take another."""
    if precision in ON_GPUS and not on_gpu(accelerator):
        where = "trainer.accelerator=cpu" if accelerator == "cpu" else "this machine has none"
        raise UserError(
            f"trainer.precision = {precision} is for NVIDIA GPUs, and {where}: choose bf16-mixed, "
            "32-true or auto"
        )


def lightning_name(precision: Precision) -> Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]:
    """What Lightning calls it; tf32 is float32 multiplied by other means (`multiply_in`)."""
    return "32-true" if precision == "tf32" else precision


def multiply_in(precision: Precision | Literal["auto"]) -> None:
    """Let GPUs round the factors of float32 products to 10 bits (TensorFloat-32), or not."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """What a mixed precision multiplies in; None where that is the dtype of the weights."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)


def _cpu_multiplies_bf16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "AVX512" in capabilities() and bool(native())
