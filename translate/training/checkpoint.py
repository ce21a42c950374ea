"""Checkpoints that a crash cannot tear, damage cannot pass and a stranger cannot use to run code.

A checkpoint is a zip archive, as PyTorch writes it, whose comment is the SHA-256 of all before it.
One rename replaces the state and its digest together; with a manifest beside it there would be a
moment when the two disagree.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from translate.errors import UserError, first_line
from translate.files import replacing

SEAL = struct.Struct("<H64s")  # the end of a zip archive: length of the comment, comment
ARCHIVE = b"PK"  # how every zip archive begins
CHUNK = 1 << 20


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, written whole and sealed, read only when the seal holds."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        final = Path(path)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with replacing(final) as file:
                torch.save(checkpoint, file)
                _seal(file)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"cannot write checkpoint {final}: {_reason(error)}; the previous one is intact: "
                "free up space or repair the folder, then run the same command again"
            ) from error

    def load_checkpoint(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """The checkpoint, on the CPU.

        Raises:
            UserError: the file cannot be read, is damaged, or holds more than tensors and numbers.
        """
        try:
            with Path(path).open("rb") as file:
                if not _sealed(file):
                    raise UserError(
                        f"{path} is damaged: it does not match the SHA-256 at its end; "
                        f"{_remedy(path)}"
                    )
                file.seek(0)
                if file.read(2) != ARCHIVE:  # PyTorch would try its older formats
                    raise UserError(f"{path} is not a checkpoint of this program; {_remedy(path)}")
                file.seek(0)
                return _content(file, path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _content(file: BinaryIO, path: str | os.PathLike[str]) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # an unpickler says anything of what is malformed
        raise UserError(
            f"{path} is not a checkpoint of this program ({first_line(error)}); {_remedy(path)}"
        ) from error


def _reason(raised: BaseException) -> str:
    """What the system said; PyTorch raises an error of its own on top of it."""
    error: BaseException | None = raised
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return first_line(raised) if error is None or not error.strerror else error.strerror


def _seal(file: BinaryIO) -> None:
    """Append the digest of a zip archive that has no comment yet as its comment."""
    size = file.seek(-2, os.SEEK_END)  # where the length of the comment, 0, stands
    digest = _digest(file, size)
    file.seek(size)
    file.write(SEAL.pack(len(digest), digest))


def _sealed(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END) - SEAL.size
    if size < 0:
        return False
    digest = _digest(file, size)
    return file.read() == SEAL.pack(len(digest), digest)


def _digest(file: BinaryIO, size: int) -> bytes:
    """SHA-256 in hexadecimal of the first `size` bytes, after which the file then stands."""
    sha256 = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, CHUNK))):
        sha256.update(block)
        size -= len(block)
    return sha256.hexdigest().encode()


def _remedy(path: str | os.PathLike[str]) -> str:
    last = Path(path)
    if last.name != "last.ckpt":  # no run goes on from it
        return "restore a copy, or choose another checkpoint"
    return (
        f"restore a copy, copy {last.with_name('best.ckpt')} over it to resume from the best dev "
        "BLEU, or remove the run's folder and start over"
    )
