"""What a run takes of disk and memory, and whether its checkpoints will fit on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch import nn

from translate.errors import UserError

MOMENTS = 2  # AdamW keeps two numbers a parameter
CHECKPOINTS = 3  # last, best, and the one that is being written
BUNDLES = 2  # the best, and the one that will replace it
SLACK = 64 << 20  # bytes: logs, pictures, metrics, names


def check_room(run: Path, model: nn.Module, *, averaged: bool, keep: int) -> None:
    """Refuse a run that would end with a full disk.

    Raises:
        UserError: names what is needed and what there is.
    """
    needed = space_of_run(model, averaged=averaged, keep=keep) - _written(run)
    free = shutil.disk_usage(run).free
    if free < needed:
        raise UserError(
            f"{run} has {readable(free)} free, but checkpoints and bundle need "
            f"{readable(needed)}: free up space, or choose another folder with run= or a smaller "
            "model"
        )


def space_of_run(model: nn.Module, *, averaged: bool, keep: int) -> int:
    """Bytes that a run takes on the disk; `keep` checkpoints of validations stay."""
    weights = bytes_of(model)
    checkpoint = weights * (1 + MOMENTS + averaged)
    return (CHECKPOINTS + keep) * checkpoint + BUNDLES * weights + SLACK


def memory_of_training(model: nn.Module, *, averaged: bool) -> int:
    """Bytes of memory that weights, gradients, optimizer and averages take while training."""
    return bytes_of(model) * (2 + MOMENTS + averaged)


def bytes_of(model: nn.Module) -> int:
    """Bytes that the weights take."""
    return sum(p.nbytes for p in model.parameters())


def _written(run: Path) -> int:
    """Bytes of an earlier part of the run, which will be replaced."""
    files = (path for name in ("checkpoints", "bundle") for path in (run / name).glob("*"))
    return sum(path.stat().st_size for path in files)


def readable(count: int) -> str:
    """A number of bytes as people read it: `1.2 GB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
