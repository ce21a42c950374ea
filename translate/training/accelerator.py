"""Whether a run computes on a GPU."""

from __future__ import annotations

import torch


def on_gpu(accelerator: str) -> bool:
    """As Lightning decides it: `auto` takes a GPU where there is one."""
    return accelerator != "cpu" and torch.cuda.is_available()
