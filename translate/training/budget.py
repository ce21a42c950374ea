"""What a run has used: time and text, in provenance.json beside what it began with."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from translate.data.batching import Batch
from translate.training import provenance

SIDES = ("source_tokens", "target_tokens")


class Budget(Callback):
    """Notes seconds and tokens with each save, so that they are those of the steps that count.

    What a kill took of them is taken again. Tokens, </s> included, are those of all processes, and
    a part of the checkpoint; seconds, with validations, are of all calls, and in the record alone:
    checkpoints of runs that were stopped or not are the same.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.before = dict.fromkeys(SIDES, 0)  # in earlier calls
        self.here = dict.fromkeys(SIDES, 0)  # in this one, by this process
        self.seconds = self.started = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        for side in SIDES:
            self.here[side] += getattr(batch, side)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["tokens"] = self._note(trainer)

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.before = checkpoint.get("tokens", self.before)  # runs of before had none
        self.seconds = float(provenance.noted(self.run, "seconds") or 0)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._note(trainer)

    def _note(self, trainer: L.Trainer) -> dict[str, int]:
        """The tokens so far, which all processes ask for at once; one writes them down."""
        here = torch.tensor([*self.here.values()], device=trainer.strategy.root_device)
        of_all = trainer.strategy.reduce(here, reduce_op="sum").tolist()
        tokens = {side: self.before[side] + n for side, n in zip(SIDES, of_all, strict=True)}
        if trainer.is_global_zero:
            seconds = self.seconds + time.monotonic() - self.started
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            provenance.write(self.run, ended=ended, seconds=round(seconds, 1), **tokens)
        return tokens
