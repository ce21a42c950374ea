"""Checkpoints that are kept for what they score, or for being the latest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from translate.training.checkpoint_average import kept
from translate.training.last_checkpoint import as_after_the_batch
from translate.training.steps import is_due


class BestCheckpoints(ModelCheckpoint):
    """Lightning's `ModelCheckpoint`, for runs that go on in a moved folder or with fewer to keep.

    Lightning forgets all scores in another folder, and would overwrite the best with the next; of
    more files than it is to keep it never deletes one again. And of equal scores it keeps the
    first: where BLEU stays 0, the model that has learned least.
    """

    def check_monitor_top_k(self, trainer: L.Trainer, current: Tensor | None = None) -> bool:
        level = current is not None and self.save_top_k > 0 and bool(current == self.kth_value)
        return level or super().check_monitor_top_k(trainer, current)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        with as_after_the_batch(trainer):  # a run may go on from it, as from last.ckpt
            super().on_validation_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        models = state_dict["best_k_models"]
        latest_best = sorted(models, key=models.__getitem__, reverse=self.mode == "max")
        best, surplus = latest_best[: self.save_top_k], latest_best[self.save_top_k :]
        for path in surplus:
            Path(self._here(path)).unlink(missing_ok=True)
        super().load_state_dict(
            state_dict
            | {
                "dirpath": self.dirpath,
                "best_k_models": {self._here(path): models[path] for path in best},
                "best_model_path": self._here(state_dict["best_model_path"]),
                "kth_best_model_path": self._here(best[-1]) if best else "",
                "kth_value": models[best[-1]] if best else state_dict["kth_value"],
                "last_model_path": self._here(state_dict["last_model_path"]),
            }
        )

    def _here(self, path: str) -> str:
        assert self.dirpath is not None
        return str(Path(self.dirpath) / Path(path).name) if path else ""


class LatestCheckpoints(BestCheckpoints):
    """Those of the last steps, also where what a run goes on from knows of others.

    A call between may have kept none; an earlier checkpoint than the last knows of fewer. Files of
    steps that are taken again are removed, as the rows of metrics.csv are. None is kept of a
    validation that there is only because a call ends before the run: the same steps are there in
    however many calls.
    """

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if is_due(trainer) or trainer.global_step >= trainer.max_steps:
            super().on_validation_end(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        assert self.dirpath is not None
        there = {}
        for step, path in kept(Path(self.dirpath).parent).items():
            if step <= trainer.global_step:
                there[str(path)] = torch.tensor(step)
            elif trainer.is_global_zero:
                path.unlink(missing_ok=True)
        if there and there.keys() != self.best_k_models.keys():
            latest = {"best_k_models": there, "best_model_path": [*there][-1]}
            self.load_state_dict(self.state_dict() | latest)
