"""Which number format a machine trains fastest in."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]


def settle(precision: Precision | Literal["auto"], accelerator: str) -> Precision:
    """Lightning's name of a precision; `auto` takes bf16 where the machine multiplies it natively.

    On CPUs with AVX512-BF16 or AMX a step of the default Transformer is about 1.6 times as fast in
    bf16 as in float32 (docs/benchmarks/training.md); recurrences stay in float32 by themselves.
    """
    if precision != "auto":
        return precision
    if accelerator != "cpu" and torch.cuda.is_available():
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = _cpu_multiplies_bf16()
    return "bf16-mixed" if native else "32-true"


def autocast_dtype(precision: Precision) -> torch.dtype | None:
    """What a mixed precision multiplies in; None where that is the dtype of the weights."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)


def _cpu_multiplies_bf16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "AVX512" in capabilities() and bool(native())
