"""The optimizer, and the learning rate over the run as a share of its peak."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Factor = Callable[[int], float]  # optimizer step → share of the peak learning rate


def adamw(
    model: nn.Module,
    *,
    learning_rate: PositiveFloat,
    beta1: Beta,
    beta2: Beta,
    eps: PositiveFloat,
    weight_decay: Annotated[float, Field(ge=0)],
) -> Optimizer:
    """AdamW (Loshchilov & Hutter 2019), fused; decay spares vectors: norms, biases, v."""
    matrices = [p for p in _learned(model) if p.squeeze().dim() > 1]
    vectors = [p for p in _learned(model) if p.squeeze().dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors},
    ]
    return torch.optim.AdamW(
        groups, lr=learning_rate, betas=(beta1, beta2), eps=eps, weight_decay=0.0, fused=True
    )


def sgd(model: nn.Module, *, learning_rate: PositiveFloat, momentum: Beta) -> Optimizer:
    """Stochastic gradient descent (Luong et al. 2015, section 4.1)."""
    # not fused: PyTorch cannot deal that out to processes
    return torch.optim.SGD(_learned(model), lr=learning_rate, momentum=momentum)


def adadelta(
    model: nn.Module, *, learning_rate: PositiveFloat, rho: Beta, eps: PositiveFloat
) -> Optimizer:
    """Adadelta (Zeiler 2012), which Bahdanau et al. 2015 trained with (appendix B.2)."""
    return torch.optim.Adadelta(_learned(model), lr=learning_rate, rho=rho, eps=eps)


def _learned(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _warm(step: int, warmup_steps: int) -> float:
    return min(1.0, (step + 1) / max(1, warmup_steps))


def inverse_sqrt(total_steps: int, *, warmup_steps: PositiveInt) -> Factor:
    """Linear warm-up, then 1/√step (Vaswani et al. 2017, eq. 3), 1 at the peak."""
    return lambda step: min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def linear(total_steps: int, *, warmup_steps: NonNegativeInt, final: Share) -> Factor:
    """Linear warm-up, then a straight line that reaches `final` one step after the last."""

    def factor(step: int) -> float:
        left = (total_steps - step) / max(1, total_steps - warmup_steps)
        return _warm(step, warmup_steps) * (final + (1 - final) * min(1.0, max(0.0, left)))

    return factor


def cosine(total_steps: int, *, warmup_steps: NonNegativeInt, final: Share) -> Factor:
    """Linear warm-up, then half a cosine down to `final` (Loshchilov & Hutter 2017)."""

    def factor(step: int) -> float:
        done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        wave = (1 + math.cos(math.pi * min(1.0, max(0.0, done)))) / 2
        return _warm(step, warmup_steps) * (final + (1 - final) * wave)

    return factor


def halving(
    total_steps: int, *, warmup_steps: NonNegativeInt, parts: PositiveInt, kept: NonNegativeInt
) -> Factor:
    """The peak for `kept` of the equal parts of the run, then half in each part of what was before.

    Luong et al. 2015, section 4.1, whose parts are epochs.
    """

    def factor(step: int) -> float:
        part = min(step, total_steps - 1) * parts // total_steps  # from 0
        return _warm(step, warmup_steps) * 0.5 ** max(0, part + 1 - kept)

    return factor


def constant(total_steps: int, *, warmup_steps: NonNegativeInt) -> Factor:
    """Linear warm-up, then the peak."""
    return lambda step: _warm(step, warmup_steps)


def plateau(
    optimizer: Optimizer,
    *,
    factor: Annotated[float, Field(gt=0, lt=1)],
    patience: PositiveInt,
) -> ReduceLROnPlateau:
    """Multiply by `factor` when dev BLEU has not risen for `patience` validations."""
    tolerated = patience - 1  # PyTorch counts those without a consequence
    return ReduceLROnPlateau(
        optimizer, mode="max", factor=factor, patience=tolerated,
        threshold=0.0,  # any rise is one, as for patience and the best checkpoint
    )  # fmt: skip


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": adamw,
    "sgd": sgd,
    "adadelta": adadelta,
}
FACTORS: dict[str, Callable[..., Factor]] = {
    "inverse_sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
    "halving": halving,
    "constant": constant,
}
SCHEDULES: dict[str, Callable[..., Any]] = {**FACTORS, "plateau": plateau}


def build_optimizer(model: nn.Module, *, kind: str, **options: Any) -> Optimizer:
    """The optimizer of a config node `optimizer`."""
    return OPTIMIZERS[kind](model, **options)


def build_schedule(
    optimizer: Optimizer, total_steps: int, *, kind: str, **options: Any
) -> dict[str, Any]:
    """The schedule of a config node `schedule`, as Lightning takes it."""
    if kind == "plateau":
        schedule = plateau(optimizer, **options)
        return {"scheduler": schedule, "monitor": "dev/bleu", "strict": False}
    factor = FACTORS[kind](total_steps, **options)
    return {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}


def renew_rates(schedule: LambdaLR) -> None:
    """The learning rates of the schedule's present step, as the step before would set them."""
    groups = zip(
        schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    )
    for group, peak, factor in groups:
        group["lr"] = peak * factor(schedule.last_epoch)
