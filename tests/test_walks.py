"""How many files one sentence, one training step and one configuration pass through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.timeout(900)  # four processes start, one after the other

# Files executed at most, as scripts/walks.py counts them, and the goal. The bound only falls.
BOUNDS = {
    "one sentence by .translate": (17, 17),
    "… with its guard": (18, 18),
    "one sentence by translate text": (31, 30),
    "one training step": (10, 10),
    "composing a configuration": (11, 10),
    "… by translate train -c job": (19, 18),
}


@pytest.fixture(scope="module")
def walks() -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "walks.py"), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counted: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return counted


@pytest.mark.parametrize("walk", BOUNDS)
def test_a_walk_passes_few_files(walks: dict[str, list[str]], walk: str) -> None:
    files, (bound, goal) = walks[walk], BOUNDS[walk]
    summary = f"{len(files)} files, at most {bound} (goal: {goal}):"
    assert len(files) <= bound, "\n  ".join([summary, *files])


@pytest.mark.parametrize("walk", BOUNDS)
def test_no_walk_leads_over_the_porch(walks: dict[str, list[str]], walk: str) -> None:
    assert [file for file in walks[walk] if file.startswith("translate/extras/")] == []
