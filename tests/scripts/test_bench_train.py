"""The benchmark of training: every row from a run of the public command, peers counted alike."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def bench(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("bench_train")


def prints(text: str) -> str:
    """A peer that says this."""
    return shlex.join(["echo", text])


def test_a_real_run_beside_a_peer(bench, tmp_path, monkeypatch, capsys) -> None:
    peer = prints(json.dumps({"tok_per_s": 1.0, "peak_rss_mb": 2}))
    arguments = [
        "--models", "rnn_none", "--precisions", "32-true", "--tokens", "300", "--steps", "20",
        "--peer", f"snail={peer}", "data=toy", "data.train=400", "data.dev=20", "data.test=20",
        "tokenizer=word", "model.hidden_size=16", "model.embedding_size=16", f"cache={tmp_path}",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_train.py", *arguments])
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS.parent))
    bench.main()
    table = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[2] == ["snail", "", "", "1", "1.00", "", "2"]
    name, _, _, speed, ratio, start, peak = rows[3]
    assert name == "rnn_none"
    assert float(ratio) == pytest.approx(float(speed.replace(",", "")), abs=1)
    assert 0 < float(start) < 60
    assert float(peak.replace(",", "")) > 50


def test_a_peer_that_fails_is_told(bench) -> None:
    with pytest.raises(SystemExit, match="no tok_per_s from: echo fine"):
        bench.measure_peer("echo fine")


def test_the_figures_of_rounds_are_medians(bench) -> None:
    runs = [bench.Measured(1, 9, 4), bench.Measured(2, 7, 4), bench.Measured(9, 8, 5)]
    assert bench.median(runs) == (2, 8, 4)
