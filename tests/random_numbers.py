"""Random numbers in double precision."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from translate.attention.dot_product import leave_out_cudnn

DEVICE = os.environ.get("TEST_DEVICE", "cpu")  # scripts/gpu_check.sh runs these tests on CUDA


@pytest.fixture
def randn() -> Iterator[Callable[..., Tensor]]:
    """Normal numbers, the same in every run; each call of a test draws others.

    They are on TEST_DEVICE, as are all new tensors and modules of a test that draws some; there
    PyTorch chooses among the kernels that it may choose among when the program runs.
    """
    generator = torch.Generator(DEVICE).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    if DEVICE != "cpu":
        leave_out_cudnn()
    with nullcontext() if DEVICE == "cpu" else torch.device(DEVICE):
        yield draw
