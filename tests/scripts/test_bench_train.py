"""The benchmark of training: every row from a run of the public command, peers counted alike."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked import forked
from torch import nn

from translate.cli.main import main
from translate.errors import UserError
from translate.inference import bundle


def prints(text: str) -> str:
    """A peer that says this."""
    return shlex.join(["echo", text])


def in_a_thread(count: int, **_: object) -> ThreadPoolExecutor:
    """The corpus is prepared without a process of its own, which would import all that is here."""
    return ThreadPoolExecutor(count)


class Forked:
    """In place of `subprocess.Popen`: the program, with all that it imports there."""

    def __init__(self, command: list[str], **_: object) -> None:
        assert command[:3] == [sys.executable, "-m", "translate"]
        reader, writer = os.pipe()
        self.pid = forked(partial(main, command[3:]), writer)
        os.close(writer)
        self.stderr, self.returncode = os.fdopen(reader), None


def test_a_real_run_beside_a_peer(script, tmp_path, monkeypatch, capsys) -> None:
    peer = prints(json.dumps({"tok_per_s": 1.0, "peak_rss_mb": 2}))
    arguments = [
        "--models", "rnn_none", "--precisions", "32-true", "--tokens", "300", "--steps", "20",
        "--peer", f"snail={peer}", "data=toy", "data.train=400", "data.dev=20", "data.test=20",
        "tokenizer=word", "model.hidden_size=16", "model.embedding_size=16", f"cache={tmp_path}",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_train.py", *arguments])
    apart = SimpleNamespace(Popen=Forked, run=subprocess.run, PIPE=subprocess.PIPE)
    monkeypatch.setattr(script, "subprocess", apart)
    monkeypatch.setattr(script, "ProcessPoolExecutor", in_a_thread)
    limits = {"32": 200.0}, "the limit"
    monkeypatch.setattr(script, "matrix_limits", lambda: limits)
    script.main()
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


def test_a_peer_that_fails_is_told(script) -> None:
    with pytest.raises(UserError, match="no tok_per_s from: echo fine"):
        script.measure_peer("echo fine")


def test_a_variant_is_a_row_with_overrides_of_its_own(
    script, tmp_path, monkeypatch, capsys
) -> None:
    seen = []

    def measure(steps: int, chosen: list[str]) -> object:
        assert any(tmp_path.iterdir()), "the corpus has to be there, or it counts as start"
        seen.append((steps, chosen[0], chosen[1], chosen[-4:]))
        return script.Measured(100.0, 1.0, 2.0, 3.0, 50.0)

    monkeypatch.setattr(script, "measure", measure)
    monkeypatch.setattr(script, "ProcessPoolExecutor", in_a_thread)
    monkeypatch.setattr(
        script, "matrix_limits", lambda: ({"32": 200.0, "bf16": 100.0}, "the limit")
    )
    small = ["data=toy", "tokenizer=word", "data.train=40", "data.dev=9", "data.test=9"]
    arguments = [
        "--models", "rnn_none", "--precisions", "32-true", "bf16-mixed", "16-mixed",
        "--variant", "both=seed=7 'trainer.word_dropout=0.1'", *small, f"cache={tmp_path}",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_train.py", *arguments])
    script.main()
    assert seen == [
        (60, "model=rnn_none", f"trainer.precision={precision}", overrides[-4:])
        for precision in ("32-true", "bf16-mixed", "16-mixed")
        for overrides in (
            [*small, f"cache={tmp_path}"],
            [*small, f"cache={tmp_path}", "seed=7", "trainer.word_dropout=0.1"],
        )
    ]
    rows = capsys.readouterr().out.splitlines()[2:8]
    assert [row.split(" | ")[0] for row in rows] == ["| rnn_none", "| rnn_none, both"] * 3
    shares = [row.split(" | ")[6] for row in rows]
    assert shares == ["25%"] * 2 + ["50%"] * 2 + [""] * 2  # float16 products are not measured


def test_wrong_settings_are_told_before_any_run(script, monkeypatch) -> None:
    monkeypatch.setattr(script, "measure", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(script, "measure_peer", lambda *_: pytest.fail("a peer trains"))
    given = ["--models", "transfromer", "--peer", "a=b", "data=toy"]
    monkeypatch.setattr(sys, "argv", ["bench_train.py", *given])
    with pytest.raises(UserError, match="transfromer"):
        script.main()


def test_weights_that_meet_a_token(script, monkeypatch) -> None:
    model = nn.Module()
    model.source_embedding, model.output = nn.Embedding(7, 2), nn.Linear(2, 5)
    model.encoder, model.key_value, model.decoder = (
        nn.Linear(2, 3),
        nn.Linear(2, 2),
        nn.Linear(3, 3),
    )
    monkeypatch.setattr(bundle, "load", lambda _: SimpleNamespace(model=model))
    found = script.weights_a_token(Path("run"), script.Side(1, 30), script.Side(1, 10))
    assert found == ((6 + 4) * 30 + (9 + 10) * 10) / 40
