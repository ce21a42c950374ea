"""Checkpoints that a crash cannot tear: written beside, synced, then renamed over the old one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from translate.errors import UserError

TEMPORARY = ".tmp"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, but a reader meets the whole old file or the whole new one."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        final = Path(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(final.name + TEMPORARY)  # same folder: rename stays atomic
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(final)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(
                f"cannot write checkpoint {final}: {error.strerror}; the one before is intact"
            ) from error
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the rename itself survives a power cut
        finally:
            os.close(folder)


def remove_stale_temporaries(folder: Path) -> None:
    """Delete what a killed run was writing."""
    for path in folder.glob(f"*{TEMPORARY}"):
        path.unlink()
