"""Random numbers in double precision, and attention by loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def randn() -> Callable[..., Tensor]:
    """Normal numbers, the same in every run; each call of a test draws others."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return draw
