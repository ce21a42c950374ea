"""Averaged weights for validation and for the bundle: an exponential average or a mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from translate.training.settings import AVERAGING_STARTS, AveragingConfig
from translate.training.step import ends_step

WEIGHTS = "averaged_weights"  # of a checkpoint, beside the trained ones


class AveragedWeights(Callback):
    """An average of the weights that are trained, which takes their place for validation.

    Where weights are sharded over processes, each averages its own shards. A checkpoint holds both
    whole, so that a run goes on under any strategy. Until the first update nothing is swapped.

    The kind `ema` keeps decay·average + (1-decay)·weights; early on with min(decay, (1+n)/(10+n))
    at update n, so that the random beginning is soon forgotten. `last` keeps the mean of the
    weights at all updates, by default of the run's last quarter.
    """

    def __init__(self, config: AveragingConfig, *, total_steps: int) -> None:
        self.kind, self.decay = config.kind, config.decay
        share = AVERAGING_STARTS[config.kind] if config.start is None else config.start
        self.first, self.every = int(share * total_steps), config.every
        self.updates = 0
        self.average: list[Tensor] = []  # in the order of the weights; empty before the first

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # a checkpoint may be read before the model is on its device
        self.average = [average.to(pl_module.device) for average in self.average]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not ends_step(trainer, batch_idx):
            return
        past = trainer.global_step - 1 - self.first
        # in a run that has become longer the first step may lie ahead again
        if (past >= 0 or self.updates) and past % self.every == 0:
            self._update([*pl_module.parameters()])

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap(pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap(pl_module)

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for weight, average in self._pairs(pl_module):
            weight.copy_(average)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.updates = state_dict["updates"]

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.updates:
            checkpoint[WEIGHTS] = self._named(pl_module, kept=trainer.is_global_zero)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if saved := checkpoint.get(WEIGHTS):
            self.average = [
                _laid_out_as(weight, saved[name]) for name, weight in pl_module.named_parameters()
            ]

    @torch.no_grad()
    def _update(self, weights: list[Tensor]) -> None:
        if not self.updates:
            self.average = [weight.detach().clone() for weight in weights]
        elif self.kind == "ema":
            kept = min(self.decay, (1 + self.updates) / (10 + self.updates))
            torch._foreach_lerp_(self.average, weights, 1 - kept)
        else:
            torch._foreach_lerp_(self.average, weights, 1 / (self.updates + 1))
        self.updates += 1

    @torch.no_grad()
    def _swap(self, module: nn.Module) -> None:
        for weight, average in self._pairs(module):
            trained = weight.clone()
            weight.copy_(average)
            average.copy_(trained)

    def _pairs(self, module: nn.Module) -> Iterable[tuple[Tensor, Tensor]]:
        """Pair each weight with its average, once there is one."""
        return zip(module.parameters(), self.average, strict=True) if self.updates else ()

    def _named(self, module: nn.Module, *, kept: bool) -> dict[str, Tensor]:
        """Return the whole average, under each name of weights that several parts share.

        All processes gather it; one of them keeps it.
        """
        whole = {id(weight): _whole(average, kept=kept) for weight, average in self._pairs(module)}
        names = module.named_parameters(remove_duplicate=False) if kept else ()
        return {name: whole[id(weight)] for name, weight in names}


def for_use(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights to validate and ship: averaged where the checkpoint has them."""
    return {**checkpoint["state_dict"], **checkpoint.get(WEIGHTS, {})}


def _whole(average: Tensor, *, kept: bool) -> Tensor:
    """Gather what this process has a part of, off the device, which may lack the room."""
    if not isinstance(average, DTensor):
        return average
    gathered = average.full_tensor()
    return gathered.cpu() if kept else gathered.new_empty(0)


def _laid_out_as(weight: Tensor, whole: Tensor) -> Tensor:
    """Return `whole`, or the part of it that this process has of the weight."""
    if isinstance(weight, DTensor):
        # every process has read the checkpoint: none needs to be sent anything
        return distribute_tensor(
            whole.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None
        )
    return whole.to(weight.device)
