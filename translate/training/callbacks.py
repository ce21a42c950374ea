"""Around the steps: progress, speed, and when dev BLEU has risen no longer."""

from __future__ import annotations

import logging
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, RichProgressBar
from rich.progress import ProgressColumn
from torch.optim import Optimizer

from translate.data.batching import Batch
from translate.machine import give_back_memory
from translate.training.module import TranslationTask
from translate.training.steps import ends_step, is_due
from translate.wording import counted

log = logging.getLogger(__name__)

TIDIED = 100  # batches, after which memory is given back
TIMED = 10  # steps, after which a run can tell how long it will take

LOOK = 1.0  # seconds between looks at the losses, each of which waits for the GPU
SHOWN = (  # beside the bar: logged name, name for people, format
    ("train/loss", "loss", "%.3f"),
    ("train/risk", "risk", "%.3f"),
    ("tokens_per_second", "tokens/s", "%.0f"),
    ("learning_rate", "learning rate", "%.2e"),
)


class StepsBar(RichProgressBar):
    """One bar over the whole run, on stderr: the stream of batches itself has no end."""

    def __init__(self, batches: int, reports: Reports) -> None:
        super().__init__(console_kwargs={"stderr": True})
        self.batches, self.reports = batches, reports
        self.losses: dict[str, float] = {}
        self.looked = 0.0  # when they were these

    @property
    def total_train_batches(self) -> int:
        return self.batches

    def configure_columns(self, trainer: L.Trainer) -> list[ProgressColumn]:
        """Lightning's columns without the epoch, of which there is one, and iterations a second."""
        _, bar, batches, times, _ = super().configure_columns(trainer)
        bar.bar_width = 20  # leaves room for the figures
        return [bar, batches, times]

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        now = time.monotonic()
        if now - self.looked >= LOOK:
            assert isinstance(pl_module, TranslationTask)
            self.looked, self.losses = now, pl_module.means.here()  # none right after a report
        figures = self.reports.shown | self.losses
        return {shown: form % figures[key] for key, shown, form in SHOWN if key in figures}


class SpareMemory(Callback):
    """Gives the gaps between tensors back now and then, or a long run has twice what it uses.

    The steps after it find their pages anew in a tenth of a second; after each that would be much.
    """

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        if (args[-1] + 1) % TIDIED == 0:
            give_back_memory()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        give_back_memory()


class Patience(EarlyStopping):
    """Early stopping that takes a new patience when a run goes on, and stays stopped once spent."""

    @property
    def spent(self) -> bool:
        """Whether there were as many validations without a better dev BLEU."""
        return bool(self.wait_count >= self.patience)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # not at the start of fitting, where a sharded run has not yet read its checkpoint
        trainer.should_stop = self.spent
        if self.spent:
            log.warning(
                "out of patience after step %s: to continue training, give trainer.patience=null "
                "or a larger number",
                f"{trainer.global_step:,}",
            )

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if is_due(trainer):
            super().on_validation_end(trainer, pl_module)


class EstimatedTime(Callback):
    """Says once, after `TIMED` steps, how long the rest will take at their speed.

    The first step is left out, for it loads libraries and compiles, and so are validations.
    """

    def __init__(self, *, total_steps: int) -> None:
        self.total_steps = total_steps
        self.first_step, self.started, self.paused = 0, 0.0, 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.first_step = trainer.global_step

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.paused = time.monotonic()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started += time.monotonic() - self.paused

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        done = trainer.global_step - self.first_step
        if done not in (1, TIMED) or not ends_step(trainer, batch_idx):
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()  # else a step has only been asked for
        now = time.monotonic()
        if done == 1:
            self.started = now
        elif left := self.total_steps - trainer.global_step:
            seconds = (now - self.started) / (TIMED - 1) * left
            log.info(
                "about %s for the remaining %s, without validations",
                lasting(seconds), counted(left, "step"),
            )  # fmt: skip


def lasting(seconds: float) -> str:
    """As precise as an estimate is: `40 s`, `11 min`, `2 h 05 min`, `3 d 04 h`."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24:02} h"


class Reports(Callback):
    """A row for the loggers every so many steps and, without a progress bar, a line.

    At the run's last step, too, of those since. Losses of all processes together, the learning
    rate, and tokens/s: real (not padding) source and target tokens, </s> included; validation time
    is not counted. Lightning itself would write the row after the step is saved: a run that died in
    between would go on behind it. Must come before what saves.
    """

    def __init__(self, *, every: int, total_steps: int, lines: bool) -> None:
        self.every, self.total_steps, self.lines = every, total_steps, lines
        self.tokens = 0
        self.shown: dict[str, float] = {}  # the last report
        self.seconds = self.rate = 0.0
        self.started = self.batch_started = 0.0
        self.first_step = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = self.batch_started = time.monotonic()
        self.first_step = trainer.global_step

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer
    ) -> None:
        self.rate = optimizer.param_groups[0]["lr"]  # afterwards it is the next step's

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
        self.tokens += batch.source_tokens + batch.target_tokens
        step = trainer.global_step
        due = step % self.every == 0 or step == self.total_steps
        if not due or not ends_step(trainer, batch_idx):
            return
        speed = self.tokens * trainer.world_size / self.seconds
        assert isinstance(pl_module, TranslationTask)
        losses = pl_module.means.everywhere(trainer.strategy)
        pl_module.means.clear()
        self.shown = losses | {"tokens_per_second": speed, "learning_rate": self.rate}
        for logger in trainer.loggers:
            logger.log_metrics(self.shown, step - 1)
            logger.save()  # what is still in a buffer would not be written again
        if self.lines:
            left = (now - self.started) / (step - self.first_step) * (self.total_steps - step)
            log.info(
                "step %d/%d  loss %.3f  %.0f tokens/s  learning rate %.2e  %s left",
                step, self.total_steps, losses["train/loss"], speed, self.rate, lasting(left),
            )  # fmt: skip
        self.tokens, self.seconds = 0, 0.0
