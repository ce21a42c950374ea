"""A run whose numbers are none any more is stopped before it can overwrite what was good."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, cast

import lightning as L
import torch
import torch.distributed as processes
from lightning.pytorch.callbacks import Callback
from pyarrow import Table
from torch import Tensor
from torch.distributed.tensor import DTensor

from translate.data.batching import Batch
from translate.data.pairs import at
from translate.errors import UserError
from translate.files import replacing
from translate.training.module import TranslationTask
from translate.training.steps import ends_step

FILE = "not_finite.json"
NEVER = math.inf  # the place of what is not finite, where all is
AFTER = 0.5  # of a step: where its gradient stands, behind the losses that it comes from


class _Number(NamedTuple):
    """A number to look at."""

    place: float  # its step, or that and `AFTER`
    value: Tensor
    pairs: Tensor  # of its batch; a gradient's are those of all batches of its step


class StopWhenNotFinite(Callback):
    """Looks at every loss and gradient, and at the weights before they are saved or validated.

    Asking a GPU for one number waits for all its work, and asking other processes for theirs, so
    that they are looked at every so many steps there, and before each save and validation; by one
    process on a CPU at once. All look together and stop alike, whichever had the loss: one that
    stopped alone would leave the others waiting. Must come before the callbacks that save.

    Args:
        run: where not_finite.json goes, with the pairs of the batch to look at, which the process
            writes that had them; a gradient is that of all processes.
        text: the training pairs, by their ids in a batch: the columns `source` and `target`.
    """

    def __init__(self, run: Path, *, every: int, text: Table) -> None:
        self.run, self.every, self.text = run, every, text
        self.unseen: list[_Number] = []

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        step = 1 + batch_idx // trainer.accumulate_grad_batches  # as the log counts them
        self.unseen.append(_Number(step, outputs["loss"].detach(), batch.ids))
        if not ends_step(trainer, batch_idx):
            return
        if (norm := cast(TranslationTask, pl_module).step_norm) is not None:
            pairs = torch.cat([each.pairs for each in self.unseen if each.place == step])
            self.unseen.append(_Number(step + AFTER, norm, pairs))
        at_once = pl_module.device.type == "cpu" and trainer.world_size == 1
        if at_once or step - self.unseen[0].place + 1 >= self.every:
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
        finite = torch.stack([each.value.isfinite() for each in unseen]).tolist()
        broken = next((each for each, good in zip(unseen, finite, strict=True) if not good), None)
        place = _first(NEVER if broken is None else broken.place, trainer)
        if place == NEVER:
            return
        step, told = int(place), "the loss is not finite"  # in another process
        if broken is not None and broken.place == place:
            value, pairs = str(broken.value.item()), broken.pairs.tolist()
            if place == step:
                told = f"the loss is {value}"
                self._record({"step": step, "loss": value, "pairs": pairs})
            else:  # in all processes, of the pairs of all
                told, pairs = "the gradient is not finite", _of_all(pairs, trainer)
                if trainer.is_global_zero:
                    self._record({"step": step, "gradient": value, "pairs": pairs})
        raise UserError(
            f"{told} at step {step} (its training pairs: {self.run / FILE}): {_remedy(self.run)}"
        )

    def _record(self, facts: dict[str, Any]) -> None:
        texts = {side: at(self.text, side, facts["pairs"]) for side in ("source", "target")}
        with replacing(self.run / FILE) as file:
            file.write(f"{json.dumps(facts | texts, ensure_ascii=False)}\n".encode())

    def _look_at_weights(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """An update may break them though its gradient was finite: with too high a rate."""
        broken = [name for name, p in pl_module.named_parameters() if not _is_finite(p)]
        if broken:
            raise UserError(
                f"the weights {broken[0]} are not finite after step {trainer.global_step}: "
                f"{_remedy(self.run)}"
            )


def _first(place: float, trainer: L.Trainer) -> float:
    """The earliest of all processes' places; later ones only follow from it."""
    places = torch.tensor(place, dtype=torch.float64, device=trainer.strategy.root_device)
    return float(trainer.strategy.reduce(places, reduce_op="min"))


def _of_all(pairs: list[int], trainer: L.Trainer) -> list[int]:
    """Of all processes, which all ask at once."""
    if trainer.world_size == 1:
        return pairs
    found: list[list[int]] = [[]] * trainer.world_size
    processes.all_gather_object(found, pairs)
    return [*itertools.chain.from_iterable(found)]


def _is_finite(weights: Tensor) -> bool:
    """All of them, of which this process may have a shard: all processes find, and stop, alike."""
    finite = weights.isfinite().all()
    return bool(finite.full_tensor() if isinstance(finite, DTensor) else finite)


def _remedy(run: Path) -> str:
    remedy = "lower optimizer.learning_rate or raise schedule.warmup_steps in a new run"
    saved = (run / "checkpoints" / "last.ckpt").exists()
    return f"{remedy}; the last checkpoint is intact" if saved else remedy
