"""The number of threads that trains fastest beside other processes.

The threads of a product wait for each other. Where another process holds one of them up, all lose
that time, and fewer threads are then faster. So now and then the run looks whether its threads have
waited for a core, and keeps fewer of them if they proved to be as fast.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from translate import machine

log = logging.getLogger(__name__)

PERIOD = 3.0  # seconds between two looks
WAITED = 0.2  # seconds a second, of all threads together, from which fewer are tried
IDLE = 0.8  # of a core, from which there is room for a thread more
REST = 20  # periods after a trial that was slower


class ThreadCount:
    """A number of threads, up to `most`, that follows what other processes leave."""

    def __init__(self, most: int) -> None:
        self.most = self.count = most
        self._before: tuple[int, float] | None = None  # threads and speed before a trial
        self._rest = 0

    def follow(self, speed: float, *, waited: float, idle: float) -> None:
        """Choose the count of the next period by what was seen in this one.

        Args:
            speed: of training, in any unit.
            waited: for a core, seconds a second, of all threads together.
            idle: cores that nobody used.
        """
        self._rest = max(0, self._rest - 1)
        if self._before is not None:
            (threads, before), self._before = self._before, None
            if speed < before:
                self.count, self._rest = threads, REST
            return
        if self.count < self.most and idle >= IDLE:
            self.count = min(self.most, self.count + int(idle + 1 - IDLE))
        elif self.count > 1 and waited >= WAITED and not self._rest:
            self._before = self.count, speed
            self.count = max(1, self.count - max(1, round(waited)))


class ThreadsBesideOthers(Callback):
    """A callback that computes on fewer threads while other processes use the cores."""

    def __init__(self, most: int) -> None:
        self.threads = ThreadCount(most)
        self.tokens = 0
        self.since = self.waited = self.idle = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.tokens += batch.source_tokens + batch.target_tokens
        seconds = time.monotonic() - self.since
        if seconds < PERIOD:
            return
        before = self.threads.count
        self.threads.follow(
            self.tokens / seconds,
            waited=(machine.waited() - self.waited) / seconds,
            idle=(machine.idle() - self.idle) / seconds,
        )
        if self.threads.count != before:
            torch.set_num_threads(self.threads.count)
            log.debug("computing on %d of %d threads", self.threads.count, self.threads.most)
        self._begin()

    def _begin(self) -> None:
        self.tokens, self.since = 0, time.monotonic()
        self.waited, self.idle = machine.waited(), machine.idle()
