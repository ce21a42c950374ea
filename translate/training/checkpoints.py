"""Checkpoints: how they are written and read, which are kept, and when a run is saved and ends.

A checkpoint is a zip archive, as PyTorch writes it, whose comment is the SHA-256 of all before it.
A crash cannot tear it, damage cannot pass, and a stranger cannot use it to run code: one rename
replaces the state and its digest together; with a manifest beside it there would be a moment when
the two disagree.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO
from zipfile import ZipFile

import torch
import torch.distributed as processes
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from translate.errors import UserError, first_line
from translate.files import open_plain, replacing
from translate.training.step import ends_step, is_due

log = logging.getLogger(__name__)

SEAL = struct.Struct("<H64s")  # the end of a zip archive: length of the comment, comment
ARCHIVE = b"PK"  # how every zip archive begins
CHUNK = 1 << 20

# Ctrl-C, a terminal that closes, and what clusters send: SIGUSR1 where a job asks SLURM for it
STOPPING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)
TERMINALS = (1, 2)  # where output goes


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
        """Return the checkpoint, on the CPU.

        Raises:
            UserError: the file cannot be read, is damaged, or holds more than tensors and numbers.
        """
        try:
            with open_plain(Path(path)) as file:
                if not _sealed(file):
                    raise UserError(
                        f"{path} is damaged: it does not match the SHA-256 at its end; "
                        f"{_remedy(path)}"
                    )
                file.seek(0)
                if file.read(2) != ARCHIVE:  # PyTorch would try its older formats
                    raise ValueError("it is no zip archive")
                _refuse_packed(file)
                file.seek(0)
                checkpoint = torch.load(file, map_location="cpu", weights_only=True)
                if not isinstance(checkpoint, dict):
                    raise TypeError("it holds no names")
                return checkpoint
        except UserError:
            raise
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        except Exception as error:  # an unpickler says anything of what is malformed
            raise foreign(path, error) from error


def foreign(path: str | os.PathLike[str], error: Exception) -> UserError:
    """Return what to say of a file, sealed as it may be, that no training has written."""
    reason = f"{first_line(error)} is missing" if isinstance(error, KeyError) else first_line(error)
    return UserError(f"{path} is not a checkpoint of this program ({reason}); {_remedy(path)}")


def _refuse_packed(file: BinaryIO) -> None:
    """Raise a ValueError where parts of an archive are larger than the file: they fill a memory."""
    size = file.seek(0, os.SEEK_END)
    with ZipFile(file) as archive:
        if sum(part.file_size for part in archive.infolist()) > size:
            raise ValueError("its parts are larger than the file")


def _reason(raised: BaseException) -> str:
    """Return what the system said; PyTorch raises an error of its own on top of it."""
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


def kept(run: Path) -> dict[int, Path]:
    """Find the checkpoints of validations that trainer.keep has kept, by step, rising."""
    checkpoints = {
        int(match[1]): path
        for path in (run / "checkpoints").glob("step-*.ckpt")
        if (match := re.fullmatch(r"step-(\d+)", path.stem))
    }
    return dict(sorted(checkpoints.items()))


class KeptCheckpoints(Checkpoint):
    """A callback that keeps the checkpoint of the best validation and of some of the latest.

    Of equal scores the later one is the best: where BLEU stays 0, the model that has learned most.
    Of the latest none is kept of a validation that there is only because a call ends before the
    run, so that the same steps are there in however many calls.

    Lightning's `ModelCheckpoint` forgets all scores in a folder that has moved, and would overwrite
    the best with the next; and of more files than it is to keep it never deletes one again.
    """

    def __init__(self, run: Path, *, latest: int) -> None:
        self.run, self.latest = run, latest
        self.best = -math.inf  # dev BLEU

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        for key, state in checkpoint["callbacks"].items():  # of an earlier version
            if key.startswith("BestCheckpoints") and state["best_model_score"] is not None:
                self.best = float(state["best_model_score"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.latest and trainer.is_global_zero:
            for step, path in kept(self.run).items():
                if step > trainer.global_step:  # which is taken again
                    path.unlink()
            self._remove_surplus()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != TrainerFn.FITTING:
            return
        folder, step = self.run / "checkpoints", trainer.global_step
        score = float(trainer.callback_metrics["dev/bleu"])
        with as_after_the_batch(trainer):  # a run may go on from it, as from last.ckpt
            if score >= self.best:
                self.best = score
                trainer.save_checkpoint(folder / "best.ckpt")
            if self.latest and (is_due(trainer) or step >= trainer.max_steps):
                trainer.save_checkpoint(folder / f"step-{step:07d}.ckpt")
                if trainer.is_global_zero:
                    self._remove_surplus()

    def _remove_surplus(self) -> None:
        for path in [*kept(self.run).values()][: -self.latest]:
            path.unlink()


class LastCheckpoint(Checkpoint):
    """Saves every so many steps, before the first validation, after each, and where training ends.

    It ends at the last step, out of time, out of patience or at a signal of `STOPPING`, which makes
    the present step the last; a second one does not wait. A validation is part of its step: where
    one is due, as at the last step, the step is saved after it and not before, so that going on
    neither skips nor repeats it. What is saved is not yet the averaged weights, which take the
    place of the trained ones later.

    Must come last in the list of callbacks: early stopping wants to stop before, and what others
    know of the best model so far is saved too.

    Args:
        validate_every, save_every: optimizer steps.
        max_minutes: of this call; a run that goes on gets as many again.

    Attributes:
        begun: the checkpoint that there may be is restored, and steps are taken.
        out_of_time, interrupted: what ended this call before the run was at its end.
    """

    def __init__(
        self,
        path: Path,
        *,
        save_every: int,
        validate_every: int,
        total_steps: int,
        max_minutes: float | None,
    ) -> None:
        self.path, self.save_every, self.validate_every = path, save_every, validate_every
        self.total_steps = total_steps
        self.seconds = math.inf if max_minutes is None else 60 * max_minutes
        self.deadline = math.inf
        self.group: processes.ProcessGroup | None = None
        self.out_of_time = self.interrupted = False
        self.heard: int | None = None  # a signal, by this process
        self.begun = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            # by way of the CPU: to ask of numbers on a GPU at each step would be to wait for it
            self.group = processes.new_group(backend="gloo")
        before = {number: signal.getsignal(number) for number in STOPPING}
        if before[signal.SIGHUP] == signal.SIG_IGN:  # under nohup
            del before[signal.SIGHUP]
        terminals = [*filter(os.isatty, TERMINALS)]

        def note(number: int, frame: FrameType | None) -> None:
            self.heard = number
            if number == signal.SIGHUP:
                _leave(terminals)
            log.warning("stopping after this step (interrupt again to stop at once)")
            for each, handler in before.items():
                signal.signal(each, handler)

        for each in before:
            signal.signal(each, note)
        self.deadline, self.begun = time.monotonic() + self.seconds, True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not ends_step(trainer, batch_idx):
            return
        step = trainer.global_step
        ended = step >= self.total_steps or time.monotonic() >= self.deadline
        due = step >= self.total_steps or step % self.validate_every == 0
        if self._highest(ended or self.heard is not None):
            if self._highest(ended):
                trainer.should_stop = True  # after one more validation, if none is due
                self.out_of_time = step < self.total_steps
            elif not due:
                self.interrupted = trainer.should_stop = True
                trainer.limit_val_batches = 0  # Lightning validates wherever it stops
        # there before the first bundle: a model with nothing to go on from is not trained over
        first = step == min(self.validate_every, self.total_steps) - 1
        if not due and (first or trainer.should_stop or step % self.save_every == 0):
            trainer.save_checkpoint(self.path)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != TrainerFn.FITTING:  # a validation after it has averaged weights
            return
        if not trainer.should_stop:  # after it there would be another one
            late = time.monotonic() >= self.deadline
            if self.signalled() is not None:
                self.interrupted = trainer.should_stop = True
            elif self._highest(late):
                self.out_of_time = trainer.should_stop = True
        with as_after_the_batch(trainer):
            trainer.save_checkpoint(self.path)

    def signalled(self) -> int | None:
        """Return the signal that any process has heard; all ask at once, and end alike."""
        return self._highest(self.heard or 0) or None

    def _highest(self, number: int) -> int:
        """Return the highest number of all processes: they stop where one does."""
        if self.group is None:
            return number
        highest = torch.tensor(int(number))
        processes.all_reduce(highest, op=processes.ReduceOp.MAX, group=self.group)
        return int(highest)


def _leave(terminals: Sequence[int]) -> None:
    """Write into nothing from now on: writing to a terminal that has closed would be an error."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for each in terminals:
        os.dup2(nothing, each)
    os.close(nothing)


@contextmanager
def as_after_the_batch(trainer: Trainer) -> Iterator[None]:
    """Let Lightning count as it does before a validation.

    From such a state it goes on with the next batch; from one after a validation it asks whether
    one is due now, which another max_steps can change, and else counts the step twice.
    """
    progress = trainer.fit_loop.epoch_loop.batch_progress
    for count in (progress.total, progress.current):
        count.completed -= 1
    try:
        yield
    finally:
        for count in (progress.total, progress.current):
            count.completed += 1
