"""checkpoints/last.ckpt: what a run goes on from, and when it ends."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
import torch.distributed as processes
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from translate.training.steps import ends_step

log = logging.getLogger(__name__)

# Ctrl-C, and what clusters send: SIGUSR1 where a job asks SLURM for it
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


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

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.world_size > 1:
            # by way of the CPU: to ask of numbers on a GPU at each step would be to wait for it
            self.group = processes.new_group(backend="gloo")
        found = {number: signal.getsignal(number) for number in STOPPING}

        def note(number: int, frame: FrameType | None) -> None:
            self.heard = number
            log.warning("stopping after this step (interrupt again to stop at once)")
            for each, handler in found.items():
                signal.signal(each, handler)

        for number in found:
            signal.signal(number, note)
        self.deadline = time.monotonic() + self.seconds

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
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

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
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
        """The signal that any process has heard; all ask at once, and end alike."""
        return self._highest(self.heard or 0) or None

    def _highest(self, number: int) -> int:
        """Of all processes: they stop where one does."""
        if self.group is None:
            return number
        told = torch.tensor(int(number))
        processes.all_reduce(told, op=processes.ReduceOp.MAX, group=self.group)
        return int(told)


@contextmanager
def as_after_the_batch(trainer: L.Trainer) -> Iterator[None]:
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
