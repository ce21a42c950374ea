"""What a run computes on."""

from __future__ import annotations

import torch

from translate.errors import UserError


def on_gpu(accelerator: str) -> bool:
    """Whether a run trains on an NVIDIA GPU: `auto` takes one if there is one."""
    return accelerator != "cpu" and torch.cuda.is_available()


def check_accelerator(accelerator: str) -> None:
    """UserError where a GPU is asked for and there is none."""
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "trainer.accelerator = gpu, but PyTorch finds no NVIDIA GPU here: choose auto or cpu"
        )
