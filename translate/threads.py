"""How many threads PyTorch computes with, which is a matter of the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_restored() -> Iterator[None]:
    """After the block PyTorch has as many as before, whatever it or a library sets meanwhile."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
