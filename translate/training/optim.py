"""The optimizer, and the learning rate over the run as a share of its peak."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from translate.config import Node

Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Node):
    """The node `optimizer`: which rule changes the weights."""

    learning_rate: PositiveFloat = Field(
        description="highest learning rate; the schedule says when"
    )

    @abstractmethod
    def build(self, model: nn.Module) -> Optimizer:
        """Make the optimizer of a model's parameters."""


class AdamWConfig(OptimizerConfig):
    """AdamW (Loshchilov & Hutter 2019), fused."""

    kind: Literal["adamw"] = Field(description="AdamW (Loshchilov & Hutter 2019)")
    beta1: Beta = Field(description="share that the mean gradient keeps at each step")
    beta2: Beta = Field(description="share that the mean of its squares keeps at each step")
    eps: PositiveFloat = Field(description="added to the root of the squares")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        description="times the learning rate, taken from each matrix at each step; vectors are "
        "spared"
    )

    def build(self, model: nn.Module) -> Optimizer:
        """Make the optimizer; decay spares vectors: norms, biases, v of additive attention."""
        matrices = [p for p in _learned(model) if p.squeeze().dim() > 1]
        vectors = [p for p in _learned(model) if p.squeeze().dim() <= 1]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": vectors},
        ]
        return torch.optim.AdamW(
            groups, lr=self.learning_rate, betas=(self.beta1, self.beta2), eps=self.eps,
            weight_decay=0.0, fused=True,
        )  # fmt: skip


class SGDConfig(OptimizerConfig):
    """Stochastic gradient descent (Luong et al. 2015, section 4.1)."""

    kind: Literal["sgd"] = Field(description="stochastic gradient descent (Luong et al. 2015)")
    momentum: Beta = Field(description="share that the direction keeps at each step")

    def build(self, model: nn.Module) -> Optimizer:
        # not fused: PyTorch cannot distribute that over processes
        return torch.optim.SGD(_learned(model), lr=self.learning_rate, momentum=self.momentum)


class AdadeltaConfig(OptimizerConfig):
    """Adadelta (Zeiler 2012), which Bahdanau et al. 2015 trained with (appendix B.2)."""

    kind: Literal["adadelta"] = Field(
        description="Adadelta (Zeiler 2012), with which Bahdanau et al. 2015 trained"
    )
    rho: Beta = Field(description="share that the means of squares keep at each step")
    eps: PositiveFloat = Field(description="added to both means of squares")

    def build(self, model: nn.Module) -> Optimizer:
        return torch.optim.Adadelta(
            _learned(model), lr=self.learning_rate, rho=self.rho, eps=self.eps
        )


def _learned(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


class ScheduleConfig(Node):
    """The node `schedule`: how the learning rate changes over the run."""

    @abstractmethod
    def attach(self, optimizer: Optimizer, total_steps: int) -> dict[str, Any]:
        """Make the schedule of an optimizer, as Lightning takes it."""

    def never_reached(self, total_steps: int) -> Iterator[str]:
        """Yield what the schedule never comes to in so many steps."""
        yield from ()


class StepwiseConfig(ScheduleConfig):
    """A schedule that begins with a linear warm-up and depends on the step alone."""

    warmup_steps: NonNegativeInt = Field(
        description="steps in which the rate rises from 0 to its peak"
    )

    @abstractmethod
    def factor(self, step: int, total_steps: int) -> float:
        """Return the share of the peak learning rate at an optimizer step, counted from 0."""

    def attach(self, optimizer: Optimizer, total_steps: int) -> dict[str, Any]:
        schedule = LambdaLR(optimizer, lambda step: self.factor(step, total_steps))
        return {"scheduler": schedule, "interval": "step"}

    def never_reached(self, total_steps: int) -> Iterator[str]:
        if self.warmup_steps >= total_steps:
            yield (
                f"the learning rate never stops rising: schedule.warmup_steps = "
                f"{self.warmup_steps} of {total_steps} steps; use fewer, or train longer"
            )

    def _warm(self, step: int) -> float:
        return min(1.0, (step + 1) / max(1, self.warmup_steps))


class InverseSqrtConfig(StepwiseConfig):
    """Linear warm-up, then 1/√step (Vaswani et al. 2017, eq. 3), 1 at the peak."""

    kind: Literal["inverse_sqrt"] = Field(
        description="linear warm-up, then 1/sqrt(step) (Vaswani et al. 2017, eq. 3)"
    )
    warmup_steps: PositiveInt = Field(
        description="steps in which the rate rises from 0 to its peak"
    )

    def factor(self, step: int, total_steps: int) -> float:
        return min((step + 1) / self.warmup_steps, math.sqrt(self.warmup_steps / (step + 1)))


class LinearConfig(StepwiseConfig):
    """Linear warm-up, then a straight line that reaches `final` one step after the last."""

    kind: Literal["linear"] = Field(
        description="linear warm-up, then a straight line down to the last step"
    )
    final: Share = Field(description="share of the peak that is left one step after the last")

    def factor(self, step: int, total_steps: int) -> float:
        left = (total_steps - step) / max(1, total_steps - self.warmup_steps)
        return self._warm(step) * (self.final + (1 - self.final) * min(1.0, max(0.0, left)))


class CosineConfig(StepwiseConfig):
    """Linear warm-up, then half a cosine down to `final` (Loshchilov & Hutter 2017)."""

    kind: Literal["cosine"] = Field(
        description="linear warm-up, then half a cosine down to the last step (Loshchilov & "
        "Hutter 2017)"
    )
    final: Share = Field(description="share of the peak that is left one step after the last")

    def factor(self, step: int, total_steps: int) -> float:
        done = (step - self.warmup_steps) / max(1, total_steps - self.warmup_steps)
        wave = (1 + math.cos(math.pi * min(1.0, max(0.0, done)))) / 2
        return self._warm(step) * (self.final + (1 - self.final) * wave)


class HalvingConfig(StepwiseConfig):
    """The peak for `kept` equal parts of the run, then in each part half of the one before.

    Luong et al. 2015, section 4.1, whose parts are epochs.
    """

    kind: Literal["halving"] = Field(
        description="the peak, then half as much in each further part of the run (Luong et al. "
        "2015, section 4.1)"
    )
    parts: PositiveInt = Field(
        description="equal parts of the run: its epochs, where trainer.max_epochs is as many. A "
        "run that is prolonged has longer parts, and a rate that may rise again: raise this by as "
        "much"
    )
    kept: NonNegativeInt = Field(
        description="parts with the highest rate; each later one has half the rate of the one "
        "before"
    )

    def factor(self, step: int, total_steps: int) -> float:
        part = min(step, total_steps - 1) * self.parts // total_steps  # from 0
        return self._warm(step) * 0.5 ** max(0, part + 1 - self.kept)

    def never_reached(self, total_steps: int) -> Iterator[str]:
        yield from super().never_reached(total_steps)
        if self.kept >= self.parts:
            yield (
                f"the learning rate is never halved: schedule.kept = {self.kept} of "
                f"schedule.parts = {self.parts}; keep fewer, or make more parts"
            )


class ConstantConfig(StepwiseConfig):
    """Linear warm-up, then the peak."""

    kind: Literal["constant"] = Field(description="linear warm-up, then the peak")

    def factor(self, step: int, total_steps: int) -> float:
        return self._warm(step)


class PlateauConfig(ScheduleConfig):
    """Multiply by `factor` when dev BLEU has not risen for `patience` validations."""

    kind: Literal["plateau"] = Field(description="lowered whenever dev BLEU stops rising")
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="what the rate is multiplied by"
    )
    patience: PositiveInt = Field(
        description="validations without a better dev BLEU, from 1, after which it is lowered"
    )

    def attach(self, optimizer: Optimizer, total_steps: int) -> dict[str, Any]:
        schedule = ReduceLROnPlateau(
            optimizer, mode="max", factor=self.factor,
            patience=self.patience - 1,  # PyTorch counts those without a consequence
            threshold=0.0,  # any rise is one, as for patience and the best checkpoint
        )  # fmt: skip
        return {"scheduler": schedule, "monitor": "dev/bleu", "strict": False}


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {
    "adamw": AdamWConfig,
    "sgd": SGDConfig,
    "adadelta": AdadeltaConfig,
}
SCHEDULES: dict[str, type[ScheduleConfig]] = {
    "inverse_sqrt": InverseSqrtConfig,
    "linear": LinearConfig,
    "cosine": CosineConfig,
    "halving": HalvingConfig,
    "constant": ConstantConfig,
    "plateau": PlateauConfig,
}


def renew_rates(schedule: LambdaLR) -> None:
    """Set the learning rates of the schedule's present step, as the step before would have."""
    groups = zip(
        schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    )
    for group, peak, factor in groups:
        group["lr"] = peak * factor(schedule.last_epoch)
