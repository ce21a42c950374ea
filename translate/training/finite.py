"""A run whose loss is no number any more is stopped before it can overwrite what was good."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.distributed.tensor import DTensor

from translate.data.batching import Batch
from translate.durable import replacing
from translate.errors import UserError

FILE = "not_finite.json"


class StopWhenNotFinite(Callback):
    """Looks at every loss, and at the weights before they are saved or validated.

    Asking a GPU for one number waits for all its work, so that losses are looked at `every` steps
    there, and before each save and validation; on a CPU at once. Must come before the callbacks
    that save.

    Args:
        run: where not_finite.json goes, with the pairs of the batch to look at.
    """

    def __init__(self, run: Path, *, every: int) -> None:
        self.run, self.every = run, every
        self.unseen: list[tuple[int, Tensor, Tensor]] = []  # step, loss, pairs

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        step = batch_idx // trainer.accumulate_grad_batches
        self.unseen.append((step, outputs["loss"].detach(), batch.ids))
        if pl_module.device.type == "cpu" or len(self.unseen) >= self.every:
            self._look()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._look()

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._look()
        broken = [name for name, p in pl_module.named_parameters() if not _is_finite(p)]
        if broken:
            raise UserError(
                f"the weights {broken[0]} are not finite after step {trainer.global_step}: "
                f"{_remedy()}"
            )

    def _look(self) -> None:
        unseen, self.unseen = self.unseen, []
        if not unseen or bool(torch.stack([loss for _, loss, _ in unseen]).isfinite().all()):
            return
        step, loss, pairs = next(one for one in unseen if not math.isfinite(one[1].item()))
        record = {"step": step, "loss": str(loss.item()), "pairs": pairs.tolist()}
        with replacing(self.run / FILE) as file:
            file.write(f"{json.dumps(record)}\n".encode())
        raise UserError(
            f"the loss is {loss.item()} at step {step} (its training pairs: {self.run / FILE}): "
            f"{_remedy()}"
        )


def _is_finite(weights: Tensor) -> bool:
    """All of them, of which this process may have a shard: all processes find, and stop, alike."""
    finite = weights.isfinite().all()
    return bool(finite.full_tensor() if isinstance(finite, DTensor) else finite)


def _remedy() -> str:
    return (
        "lower optimizer.learning_rate or raise schedule.warmup_steps in a new run; the last "
        "checkpoint is intact"
    )
