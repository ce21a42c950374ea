"""On a device that is not the CPU, where there is none: `second_device`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    program = str(Path(__file__).with_name("elsewhere.py"))
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
