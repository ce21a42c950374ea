"""Where in a run a step has ended, and a validation is due."""

from __future__ import annotations

import lightning as L


def ends_step(trainer: L.Trainer, batch_idx: int) -> bool:
    """Whether the optimizer has taken a step after this batch, rather than wait for more."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def is_due(trainer: L.Trainer) -> bool:
    """Whether the step's validation is one of the regular ones, or one more where a call ends.

    Patience and plateaus count the regular ones alone, so that a run learns the same in however
    many calls.
    """
    batches = trainer.global_step * trainer.accumulate_grad_batches
    return batches % trainer.val_check_interval == 0
