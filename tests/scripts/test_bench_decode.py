"""The benchmark of decoding measures what it says, and each row in a process of its own."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_decode.py"


@pytest.fixture
def bench(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("bench_decode")


def test_a_row_counts_sentences_tokens_and_the_time_of_one(bench, monkeypatch, tmp_path) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    translated: list[int] = []

    def translate(lines: list[str]) -> list[Any]:
        translated.append(len(lines))
        return [bench.Translated("the cat sat there", 3)] * len(lines)

    monkeypatch.setitem(bench.NATIVE, "native", lambda *_: translate)
    (tmp_path / "in").write_text("a\nb\u2028b\nc\nd\n", encoding="utf-8")
    (tmp_path / "ref").write_text("the cat sat there\n" * 4, encoding="utf-8")
    options = argparse.Namespace(
        input=tmp_path / "in", reference=tmp_path / "ref", device="cpu"
    )  # fmt: skip
    row = bench.measure(
        options, range(2), engine="native", search="greedy", tokens=100, export=None, single=3
    )  # fmt: skip
    assert translated == [4, 4, 4, 1, 1, 1]  # the first to warm up
    assert row.sentences == 4  # every call took one second
    assert row.tokens == 12
    assert row.p50 == 1000
    assert row.cpu >= 0
    assert row.bleu == pytest.approx(100)


def test_a_peer_stands_beside_in_the_same_table(bench, monkeypatch, capsys) -> None:
    speeds = {1: 80, 5: 20}

    def told(command: str) -> Any:
        name, beam = command.split()
        return bench.Measured(speeds[int(beam)] * (2 if name == "quick" else 1), 600.0)

    monkeypatch.setattr(bench, "told", told)
    row = SimpleNamespace(turn=lambda: None, measured=lambda: bench.Measured(100.0, 1300.0, 9.5))
    monkeypatch.setattr(bench, "Process", lambda **_: row)
    given = ["run", "in", "--engines", "native", "--tokens", "512",
             "--peer", "slow=slow {beam}", "--peer", "quick=quick {beam}"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_decode.py", *given])
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| native | greedy | 512 | 100 | 0.62 | 1,300 | 9.50 |  |  |  |  |" in lines
    assert "| native | beam 5 | 512 | 100 | 2.50 | 1,300 | 9.50 |  |  |  |  |" in lines
    assert "| quick | beam 5 |  | 40 |  | 600 |  |  |  |  |  |" in lines


def test_what_a_peer_tells_is_read_and_silence_is_named(bench) -> None:
    figures = '{"sents_per_s_decode": 5.5, "out_tok_per_s_decode": 70, "peak_rss_mb": 300}'
    peer = bench.Peer(f"echo hello; echo '{figures}'")
    peer.turn()
    peer.turn()
    found = peer.measured()
    assert found[:2] == (5.5, 70)
    assert found.peak == 300
    assert math.isnan(found.bleu)
    with pytest.raises(SystemExit, match="no sents_per_s_decode from: echo hello"):
        bench.Peer("echo hello").turn()


def test_the_searches_are_valid(bench) -> None:
    from translate.search import Search, build

    assert bench.SEARCHES
    assert all(isinstance(build(**search), Search) for search in bench.SEARCHES.values())


def test_help_tells_the_engines() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True
    )
    assert "engine=ctranslate2" in done.stdout


def test_a_row_translates_when_it_is_its_turn(bench, monkeypatch, tmp_path) -> None:
    """A process that counts its turns, by the other side of the same protocol."""
    row = tmp_path / "row.py"
    row.write_text(
        "import json, sys\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "from bench_decode import Measured, in_turns\n"
        "what = json.loads(sys.argv[-1])\n"
        "if what['engine'] == 'ill': sys.exit('out of memory')\n"
        "turns = sum(1 for _ in in_turns())\n"
        "print(json.dumps(Measured(turns, what['tokens'])._asdict()))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(bench, "__file__", str(row))
    monkeypatch.setattr(sys, "argv", ["bench_decode.py"])
    one, other = bench.Process(engine="a", tokens=5), bench.Process(engine="b", tokens=7)
    for process in (one, other, one):
        process.turn()
    assert other.measured()[:2] == (1, 7)
    assert one.measured()[:2] == (2, 5)
    with pytest.raises(SystemExit) as error:
        bench.Process(engine="ill", tokens=5)
    assert error.value.code == 1
