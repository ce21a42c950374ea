"""What happens around the steps: progress, speed, interrupts."""

from __future__ import annotations

import logging
import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar
from rich.progress import ProgressColumn

from translate.data.batching import Batch

log = logging.getLogger(__name__)


SHOWN = (  # beside the bar: logged name, name for people, format
    ("train/loss", "loss", "%.3f"),
    ("tokens_per_second", "tokens/s", "%.0f"),
    ("learning_rate", "learning rate", "%.2e"),
)


class StepsBar(RichProgressBar):
    """One bar over the whole run, on stderr: the stream of batches itself has no end."""

    def __init__(self, batches: int) -> None:
        super().__init__(console_kwargs={"stderr": True})
        self.batches = batches

    @property
    def total_train_batches(self) -> int:
        return self.batches

    def configure_columns(self, trainer: L.Trainer) -> list[ProgressColumn]:
        """Without the number of the epoch, of which there is one, and iterations a second."""
        _, bar, batches, times, _ = super().configure_columns(trainer)
        bar.bar_width = 20  # leaves room for the figures
        return [bar, batches, times]

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        logged = trainer.progress_bar_metrics
        return {shown: form % logged[key] for key, shown, form in SHOWN if key in logged}


class Throughput(Callback):
    """Logs tokens/s and the learning rate, and (without a progress bar) a line now and then.

    Tokens are real (not padding) source and target tokens, </s> included; validation time is
    not counted.
    """

    def __init__(self, *, every: int, total_steps: int, lines: bool) -> None:
        self.every, self.total_steps, self.lines = every, total_steps, lines
        self.tokens = 0
        self.seconds = 0.0
        self.started = self.batch_started = 0.0
        self.first_step = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = self.batch_started = time.monotonic()
        self.first_step = trainer.global_step

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        now = time.monotonic()
        self.seconds += now - self.batch_started
        self.batch_started = now
        self.tokens += int(batch.source_lengths.sum() + batch.target_lengths.sum())
        step = trainer.global_step
        if step % self.every or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        speed = self.tokens * trainer.world_size / self.seconds
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        pl_module.log("tokens_per_second", speed, prog_bar=True)
        pl_module.log("learning_rate", rate, prog_bar=True)
        if self.lines:
            left = (now - self.started) / (step - self.first_step) * (self.total_steps - step)
            loss = float(trainer.callback_metrics["train/loss"])
            log.info(
                "step %d/%d  loss %.3f  %.0f tokens/s  learning rate %.2e  %d:%02d left",
                step, self.total_steps, loss, speed, rate, *divmod(round(left), 60),
            )  # fmt: skip
        self.tokens, self.seconds = 0, 0.0


class StopAtStep(Callback):
    """Saves where training ends: at the last step, at a signal, out of time, or out of patience.

    Ctrl-C and SIGTERM make the present step the last; a second Ctrl-C does not wait. What is saved
    can go on: it is not yet the averaged weights, which take the place of the trained ones later.
    Must come after early stopping in the list of callbacks, to see that it wants to stop.

    Args:
        max_minutes: of this call; a run that goes on gets as many again.
    """

    def __init__(self, checkpoint: Path, *, total_steps: int, max_minutes: float | None) -> None:
        self.checkpoint, self.total_steps = checkpoint, total_steps
        self.seconds = math.inf if max_minutes is None else 60 * max_minutes
        self.deadline = math.inf
        self.signal: int | None = None
        self.saved_step = -1

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number
            log.warning("stopping after this step (once more: at once)")
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, note)
        signal.signal(signal.SIGTERM, note)
        self.deadline = time.monotonic() + self.seconds

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        if (args[-1] + 1) % trainer.accumulate_grad_batches:
            return
        late = time.monotonic() >= self.deadline
        last = self.signal is not None or late or trainer.global_step >= self.total_steps
        if trainer.strategy.reduce_boolean_decision(last, all=False):  # all processes stop together
            self._save(trainer)
            trainer.should_stop = True

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.should_stop:  # early stopping has lost its patience
            self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        if self.saved_step != trainer.global_step:
            trainer.save_checkpoint(self.checkpoint)
            self.saved_step = trainer.global_step
