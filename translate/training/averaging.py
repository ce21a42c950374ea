"""Averaged weights for validation and for the bundle: an exponential average or the last k."""

from __future__ import annotations

from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor


class AveragedWeights(WeightAveraging):
    """Lightning's averaging with a warm start; until the first update nothing is swapped.

    Args:
        kind: `ema` keeps decay·average + (1-decay)·weights; `last` the mean of all updates.
        decay: of the exponential average; early on min(decay, (1+n)/(10+n)) at update n, so that
            the random beginning is soon forgotten.
        start: share of the run after which updates begin.
        every: optimizer steps between two updates.
    """

    def __init__(
        self,
        *,
        kind: Literal["ema", "last"],
        decay: float,
        start: float,
        every: int,
        total_steps: int,
    ) -> None:
        def ema(average: list[Tensor], current: list[Tensor], count: Tensor | int) -> None:
            warm = min(decay, (1 + int(count)) / (10 + int(count)))
            torch._foreach_lerp_(average, current, 1 - warm)

        averaging: dict[str, Any] = {"multi_avg_fn": torch.no_grad()(ema)} if kind == "ema" else {}
        super().__init__(use_buffers=False, **averaging)
        self.first, self.every = int(start * total_steps), every

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        if step_idx is None:
            return False
        # in a run that has become longer the first step may lie ahead again
        begun = self._begun or step_idx >= self.first
        return begun and (step_idx - self.first) % self.every == 0

    @property
    def _begun(self) -> bool:
        return self._average_model is not None and int(self._average_model.n_averaged) > 0

    def _swap_models(self, pl_module: L.LightningModule) -> None:
        if self._begun:
            super()._swap_models(pl_module)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if not self._begun:  # the average is still what the run began with
            checkpoint["state_dict"] = checkpoint["current_model_state"]

    def _copy_average_to_current(self, pl_module: L.LightningModule) -> None:
        if self._begun:
            super()._copy_average_to_current(pl_module)
