"""One training step: its losses, its seeds, and on a device that is not the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from translate.training.step import RunningMeans, TranslationTask

TESTS = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
QUIET = [
    "trainer.max_steps=7", "trainer.log_every=6", "trainer.validate_every=7",
    "trainer.save_every=7", "trainer.validation_sentences=2",
]  # fmt: skip
FEEDING = ["model.input_feeding=true", "model.query=current", "model.attention=general"]


@pytest.mark.parametrize(
    "runs",
    [
        [("transformer", ["trainer.r_drop=1", "trainer.word_dropout=0.1", "search=beam"])],
        pytest.param(
            [
                ("transformer", ["trainer.guided_alignment.weight=0.5"]),
                ("transformer", ["model.positions=relative", "trainer.accumulate=2"]),
                ("transformer", ["model.self_attention=sliding_window", "search=sample"]),
                ("transformer", ["model.self_attention=linear", "search=diverse"]),
                ("transformer", ["model.positions=alibi", "trainer.activation_checkpointing=true"]),
                ("rnn", ["trainer.keep=2"]),
                ("rnn", [*FEEDING, "model.cell=gru"]),
                ("rnn", ["model.coverage=linguistic", "search=beam"]),
                ("rnn", ["model.attention=local_p", "model.local_score=additive"]),
                ("convolutional", []),
            ],
            marks=[pytest.mark.soak, pytest.mark.timeout(1200)],
        ),
    ],
)
def test_a_run_elsewhere_is_the_run_here_and_its_steps_wait_for_nothing(
    config: Callable[..., dict[str, Any]], tmp_path: Path, runs: list[tuple[str, list[str]]]
) -> None:
    """Without dropout, whose numbers are drawn otherwise on a CPU."""
    configurations = [
        json.dumps(config(*QUIET, "model.dropout=0", *more, model=model)) for model, more in runs
    ]
    program = str(Path(__file__).with_name("on_second_device.py"))
    done = subprocess.run(
        [sys.executable, program, str(tmp_path), *configurations],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(runs)
    for run, answer in zip(runs, answers, strict=True):
        found = json.loads(answer)
        assert len(found["here"]) == 2
        assert found["there"] == pytest.approx(found["here"], rel=1e-4), run
        assert found["waits"] == {}, run
        for search, (few, many) in found["searches"].items():
            assert few == many < 12, (run, search)  # for a batch, and for no token of it


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_model_keeps_its_contract_elsewhere() -> None:
    contract = ["-q", "-p", "no:cacheprovider", "tests/models/test_contract.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *contract],
        env=ENVIRONMENT | {"TEST_DEVICE": "second"}, cwd=TESTS.parent,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


unread: Any = None  # the batch, which decides nothing of a seed


def test_dropout_is_another_at_each_step_seed_and_process() -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        task: Any = SimpleNamespace(seed=seed, global_rank=rank, device=torch.device("cpu"))
        TranslationTask.on_train_batch_start(task, unread, step)
        return torch.rand(()).item()

    places = [(seed, step, rank) for seed in (1, 2) for step in (0, 1, 2) for rank in (0, 1)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(1, 2, 0) == drawn(1, 2, 0)


def test_a_gpu_is_seeded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    for step in (0, 1, 0):
        task: Any = SimpleNamespace(seed=1, global_rank=0, device=torch.device("cuda", 0))
        TranslationTask.on_train_batch_start(task, unread, step)
        assert torch.initial_seed() == seeds[-1]
    assert seeds[0] == seeds[2] != seeds[1]


def test_means_of_several_processes_go_on_as_if_they_had_not_stopped() -> None:
    """A checkpoint has what all had together, which none of them may count for itself."""
    both = [RunningMeans(), RunningMeans()]
    for means, (total, count) in zip(both, [(10.0, 2), (30.0, 4)], strict=True):
        means.add("train/loss", torch.tensor(total), torch.tensor(count))
        means.add("train/risk", torch.tensor(1.0), torch.tensor(1))

    def summed() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """What each has reduced, in the order in which it asks."""
        asked: list[list[torch.Tensor]] = [[], []]
        for mine, means in zip(asked, both, strict=True):
            means.summed(Mock(reduce=lambda part, reduce_op, mine=mine: mine.append(part) or part))
        (loss, tokens, risk, sentences), others = asked
        return {
            "train/loss": (loss + others[0], tokens + others[1]),
            "train/risk": (risk + others[2], sentences + others[3]),
        }

    saved = summed()
    assert saved["train/loss"] == (40, 6)
    for main, means in zip((True, False), both, strict=True):
        means.begin_with(saved, main=main)
    assert summed() == saved
    for means in both:
        means.add("train/loss", torch.tensor(7.0), torch.tensor(3))
    assert summed()["train/loss"] == (54, 12)
