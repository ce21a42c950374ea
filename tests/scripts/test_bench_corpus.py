"""What a corpus takes of memory does not grow with its text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_corpus.py"


def test_a_process_that_dies_ends_the_wait(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = load_script("bench_corpus")
    # where the new process, which is told to look in the same folders, finds no such module
    elsewhere = [folder for folder in sys.path if folder != str(SCRIPT.parent)]
    monkeypatch.setattr(sys, "path", elsewhere)
    with pytest.raises(SystemExit, match="prepared ended with status 1"):
        bench.apart(bench.prepared, tmp_path)


@pytest.mark.soak
def test_a_pair_takes_numbers_and_no_text(tmp_path: Path) -> None:
    few, many = 60_000, 360_000
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), str(few), str(many)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:]] == [f"{few:,}", f"{many:,}"]
    for column in (2, 5):  # own memory, to prepare and until the first batches
        megabytes = [float(row[column]) for row in rows[2:]]
        assert (megabytes[1] - megabytes[0]) * 2**20 / (many - few) < 200  # bytes; text takes 600
