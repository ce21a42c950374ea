"""A run whose loss is no number any more is stopped before it can overwrite what was good."""

from __future__ import annotations

import json
import sys
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
NEVER = sys.maxsize  # the step of a loss that is not finite, where all are


class StopWhenNotFinite(Callback):
    """Looks at every loss, and at the weights before they are saved or validated.

    Asking a GPU for one number waits for all its work, and asking other processes for theirs, so
    that losses are looked at every so many batches there, and before each save and validation; by
    one process on a CPU at once. All look together and stop alike, whichever had the loss: one that
    stopped alone would leave the others waiting. Must come before the callbacks that save.

    Args:
        run: where not_finite.json goes, with the pairs of the batch to look at, which the process
            writes that had them.
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
        step = 1 + batch_idx // trainer.accumulate_grad_batches  # as the log counts them
        self.unseen.append((step, outputs["loss"].detach(), batch.ids))
        at_once = pl_module.device.type == "cpu" and trainer.world_size == 1
        if at_once or len(self.unseen) >= self.every:
            self._look(trainer)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._look(trainer)
        self._look_at_weights(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._look(trainer)
        self._look_at_weights(trainer, pl_module)

    def _look(self, trainer: L.Trainer) -> None:
        unseen, self.unseen = self.unseen, []
        if not unseen:  # here as in every process
            return
        finite = torch.stack([loss for _, loss, _ in unseen]).isfinite().tolist()
        broken = next((one for one, good in zip(unseen, finite, strict=True) if not good), None)
        own = NEVER if broken is None else broken[0]
        step = _first(own, trainer)
        if step == NEVER:
            return
        value = "not finite"  # in another process
        if broken is not None and own == step:
            value = str(broken[1].item())
            record = {"step": step, "loss": value, "pairs": broken[2].tolist()}
            with replacing(self.run / FILE) as file:
                file.write(f"{json.dumps(record)}\n".encode())
        raise UserError(
            f"the loss is {value} at step {step} (its training pairs: {self.run / FILE}): "
            f"{_remedy(self.run)}"
        )

    def _look_at_weights(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """An update may break them though its loss was finite: its gradients were not."""
        broken = [name for name, p in pl_module.named_parameters() if not _is_finite(p)]
        if broken:
            raise UserError(
                f"the weights {broken[0]} are not finite after step {trainer.global_step}: "
                f"{_remedy(self.run)}"
            )


def _first(step: int, trainer: L.Trainer) -> int:
    """The earliest of all processes' steps; later ones only follow from it."""
    steps = torch.tensor(step, device=trainer.strategy.root_device)
    return int(trainer.strategy.reduce(steps, reduce_op="min"))


def _is_finite(weights: Tensor) -> bool:
    """All of them, of which this process may have a shard: all processes find, and stop, alike."""
    finite = weights.isfinite().all()
    return bool(finite.full_tensor() if isinstance(finite, DTensor) else finite)


def _remedy(run: Path) -> str:
    remedy = "lower optimizer.learning_rate or raise schedule.warmup_steps in a new run"
    saved = (run / "checkpoints" / "last.ckpt").exists()
    return f"{remedy}; the last checkpoint is intact" if saved else remedy
