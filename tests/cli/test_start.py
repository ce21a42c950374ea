"""A translation starts quickly: `translate text` imports nothing that it does not need."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"lightning", "datasets", "pyarrow", "pandas", "matplotlib", "sacrebleu", "torchmetrics",
         "ctranslate2", "scipy", "sympy", "sklearn"}  # fmt: skip

TRANSLATING = """
import gc, sys
from translate.cli.main import main
status = main(["text", sys.argv[1], "der Hund"])
print(gc.isenabled(), gc.get_stats()[2]["collections"], gc.get_freeze_count() > 100_000)
print(status, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def told(trained: Path) -> list[str]:
    """What a process says of itself that has translated a sentence."""
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATING, f"run={trained}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_translating_imports_nothing_of_training_and_of_pictures(told: list[str]) -> None:
    status, *modules = told[-1].split()
    assert status == "0"
    assert not HEAVY & set(modules)


def test_no_garbage_is_looked_for_among_what_is_imported(told: list[str]) -> None:
    assert told[-2].split() == ["True", "0", "True"]  # on again; never among all; what stays is out


def test_jobs_look_for_garbage(program, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr("translate.cli.train.job", lambda job: found.append(gc.isenabled()))
    program("train", "data=toy", "run=r")
    assert found == [gc.isenabled()] == [True]
