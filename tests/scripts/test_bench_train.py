"""The benchmark of training: every row from a run of the public command, peers counted alike."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from torch import nn

from translate.inference import bundle

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
    assert rows[2] == ["snail", "", "", "1", "1.00", "", "", "", "2"]
    name, _, _, speed, ratio, steps, share, start, peak = rows[3]
    assert name == "rnn_none"
    assert float(ratio) == pytest.approx(float(speed.replace(",", "")), abs=1)
    assert float(steps) > 0
    assert 0 <= int(share.removesuffix("%")) < 100
    assert 0 < float(start) < 60
    assert float(peak.replace(",", "")) > 50


def test_a_peer_that_fails_is_told(bench) -> None:
    with pytest.raises(SystemExit, match="no tok_per_s from: echo fine"):
        bench.measure_peer("echo fine")


def test_the_figures_of_rounds_are_medians(bench) -> None:
    runs = [bench.Measured(1, 9, 4), bench.Measured(2, 7, 4), bench.Measured(9, 8, 5)]
    assert bench.median(runs)[:3] == (2, 8, 4)


def test_a_variant_is_a_row_with_overrides_of_its_own(bench, monkeypatch, capsys) -> None:
    seen = []

    def measure(*chosen: object) -> object:
        seen.append(chosen)
        return bench.Measured(100.0, 1.0, 2.0, 3.0, 50.0)

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "matrix_limits", lambda: ({"32": 200.0, "bf16": 100.0}, "the limit"))
    arguments = ["--models", "rnn", "--variant", "both=a.b=1 c='d e'", "x=2"]
    monkeypatch.setattr(sys, "argv", ["bench_train.py", *arguments])
    bench.main()
    assert seen == [
        ("rnn", precision, 4096, 60, overrides)
        for precision in ("32-true", "bf16-mixed")
        for overrides in (["x=2"], ["x=2", "a.b=1", "c=d e"])
    ]
    rows = capsys.readouterr().out.splitlines()[2:6]
    assert [row.split(" | ")[0] for row in rows] == ["| rnn", "| rnn, both"] * 2
    assert ["25%" in row for row in rows] == [True, True, False, False]


def test_weights_that_meet_a_token(bench, monkeypatch) -> None:
    model = nn.Module()
    model.source_embedding, model.output = nn.Embedding(7, 2), nn.Linear(2, 5)
    model.encoder, model.key_value, model.decoder = (
        nn.Linear(2, 3),
        nn.Linear(2, 2),
        nn.Linear(3, 3),
    )
    monkeypatch.setattr(bundle, "load", lambda _: SimpleNamespace(model=model))
    found = bench.weights_a_token(Path("run"), bench.Side(1, 30), bench.Side(1, 10))
    assert found == ((6 + 4) * 30 + (9 + 10) * 10) / 40
