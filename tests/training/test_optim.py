"""Learning rates over the run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from translate.attention.scores import AdditiveAttention
from translate.training.optim import OPTIMIZERS, SCHEDULES


def build_optimizer(model: nn.Module, **options: Any) -> Optimizer:
    return OPTIMIZERS[options["kind"]](**options).build(model)


def build_schedule(optimizer: Optimizer, total_steps: int, **options: Any) -> dict[str, Any]:
    return SCHEDULES[options["kind"]](**options).attach(optimizer, total_steps)


ADAMW = {"kind": "adamw", "learning_rate": 0.1, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


@pytest.mark.parametrize(
    ("kind", "total", "options", "shares"),
    [
        ("inverse_sqrt", 1000, {"warmup_steps": 100}, {0: 0.01, 99: 1, 399: 0.5}),
        ("linear", 1000, {"warmup_steps": 100, "final": 0.1},
         {0: 0.01, 100: 1, 550: 0.55, 999: 0.101, 1000: 0.1, 5000: 0.1}),
        ("cosine", 1000, {"warmup_steps": 0, "final": 0.0},
         {0: 1, 250: (1 + math.cos(math.pi / 4)) / 2, 500: 0.5, 1000: 0}),
        ("cosine", 1100, {"warmup_steps": 100, "final": 0.2},
         {0: 0.01, 49: 0.5, 100: 1, 600: 0.6, 1100: 0.2, 5000: 0.2}),
        # Luong et al. 2015: 12 epochs, the rate halved in each after the 8th
        ("halving", 1200, {"warmup_steps": 0, "parts": 12, "kept": 8},
         {0: 1, 799: 1, 800: 0.5, 899: 0.5, 900: 0.25, 1000: 0.125, 1199: 0.0625, 5000: 0.0625}),
        ("halving", 5, {"warmup_steps": 2, "parts": 2, "kept": 1},
         {0: 0.5, 1: 1, 2: 1, 3: 0.5, 4: 0.5}),
        ("halving", 2, {"warmup_steps": 0, "parts": 4, "kept": 0}, {1: 0.125}),  # part 3 of 4
        ("constant", 10, {"warmup_steps": 4}, {0: 0.25, 3: 1, 4: 1, 99: 1}),
    ],
)  # fmt: skip
def test_the_rate_of_a_step_is_this_share_of_the_peak(
    kind: str, total: int, options: dict[str, Any], shares: dict[int, float]
) -> None:
    optimizer = torch.optim.SGD([torch.zeros(())], lr=1.0)
    factor = build_schedule(optimizer, total, kind=kind, **options)["scheduler"].lr_lambdas[0]
    assert {step: factor(step) for step in shares} == pytest.approx(shares)


def test_the_steps_are_those_of_adamw() -> None:
    """Loshchilov & Hutter 2019, algorithm 2."""
    model = nn.Linear(2, 2, bias=False).double()
    options = ADAMW | {"beta1": 0.7, "beta2": 0.8, "eps": 0.3}
    optimizer = build_optimizer(model, **options, weight_decay=0.5)
    w, m, v = model.weight.detach().clone(), 0.0, 0.0
    for t in (1, 2, 3):
        g = torch.tensor([[0.5 * t, -2.0], [0.1, 1.0]], dtype=torch.float64)
        model.weight.grad = g.clone()
        optimizer.step()
        m, v = 0.7 * m + 0.3 * g, 0.8 * v + 0.2 * g**2
        w = w - 0.1 * 0.5 * w
        w = w - 0.1 * (m / (1 - 0.7**t)) / ((v / (1 - 0.8**t)).sqrt() + 0.3)
        torch.testing.assert_close(model.weight.detach(), w)


def steps_of(options: dict[str, Any], gradients: list[Tensor]) -> list[Tensor]:
    """The weight after each step, from zero."""
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    optimizer = build_optimizer(model, **options)
    found = []
    for gradient in gradients:
        model.weight.grad = gradient.clone()
        optimizer.step()
        found.append(model.weight.detach().clone())
    return found


GRADIENTS = [
    torch.tensor([[0.5 * t, -2.0], [0.1, 1.0]], dtype=torch.float64) for t in (1.0, 2.0, 3.0)
]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_steps_are_those_of_gradient_descent(momentum: float) -> None:
    w, direction = torch.zeros(2, 2, dtype=torch.float64), 0.0
    for g, found in zip(
        GRADIENTS,
        steps_of({"kind": "sgd", "learning_rate": 0.1, "momentum": momentum}, GRADIENTS),
        strict=True,
    ):
        direction = momentum * direction + g
        w = w - 0.1 * direction
        torch.testing.assert_close(found, w)


def test_the_steps_are_those_of_adadelta() -> None:
    """Zeiler 2012, algorithm 1, times a learning rate."""
    options = {"kind": "adadelta", "learning_rate": 0.5, "rho": 0.9, "eps": 0.01}
    w, squares, moves = torch.zeros(2, 2, dtype=torch.float64), 0.0, torch.tensor(0.0)
    for g, found in zip(GRADIENTS, steps_of(options, GRADIENTS), strict=True):
        squares = 0.9 * squares + 0.1 * g**2
        move = -((moves + 0.01).sqrt() / (squares + 0.01).sqrt()) * g
        moves = 0.9 * moves + 0.1 * move**2
        w = w + 0.5 * move
        torch.testing.assert_close(found, w)


def test_decay_spares_vectors() -> None:
    model = nn.Linear(3, 2)
    optimizer = build_optimizer(model, **ADAMW, weight_decay=0.5)
    model.weight.grad, model.bias.grad = torch.zeros(2, 3), torch.zeros(2)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), weight * (1 - 0.1 * 0.5))
    torch.testing.assert_close(model.bias.detach(), bias)


def test_decay_spares_the_vector_of_the_additive_score() -> None:
    score = AdditiveAttention(query_size=3, memory_size=3, attention_size=4)
    matrices, vectors = build_optimizer(score, **ADAMW, weight_decay=0.5).param_groups
    assert [p.shape for p in vectors["params"]] == [(1, 4)]
    assert len(matrices["params"]) == 2


@pytest.mark.parametrize("patience", [1, 2])
def test_plateau_follows_dev_bleu(patience: int) -> None:
    optimizer = build_optimizer(nn.Linear(1, 1), **ADAMW, weight_decay=0.0)
    plan = build_schedule(optimizer, 9, kind="plateau", factor=0.5, patience=patience)
    assert plan["monitor"] == "dev/bleu"
    for score in [9.998, 10.0] + [9.0] * (patience - 1):  # any rise is one
        plan["scheduler"].step(score)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    plan["scheduler"].step(8.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
