"""The benchmark of decoding measures what it says, and each row in a process of its own."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from translate.data.tokenizer import Tokenizer
from translate.errors import UserError
from translate.inference import bundle

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_decode.py"


def test_a_row_counts_sentences_tokens_and_the_time_of_one(script, monkeypatch, tmp_path) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(script.time, "perf_counter", lambda: next(clock))
    translated: list[int] = []

    def translate(lines: list[str]) -> list[Any]:
        translated.append(len(lines))
        return [script.Translated("the cat sat there", 3)] * len(lines)

    monkeypatch.setitem(script.NATIVE, "native", lambda *_: translate)
    (tmp_path / "in").write_text("a\nb\u2028b\nc\nd\n", encoding="utf-8")
    (tmp_path / "ref").write_text("the cat sat there\n" * 4, encoding="utf-8")
    options = argparse.Namespace(
        input=tmp_path / "in", reference=tmp_path / "ref", device="cpu"
    )  # fmt: skip
    row = script.measure(
        options, range(2), engine="native", search="greedy", tokens=100, export=None, single=3
    )  # fmt: skip
    assert translated == [4, 4, 4, 1, 1, 1, 1]  # the first of either to warm up
    assert row.sentences == 4  # every call took one second
    assert row.tokens == 12
    assert row.p50 == 1000
    assert row.cpu >= 0
    assert row.bleu == pytest.approx(100)


def test_a_peer_stands_beside_in_the_same_table(script, monkeypatch, capsys) -> None:
    speeds = {1: 80, 5: 20}

    def figures_of(command: str, *_: Any) -> list[float]:
        name, beam = command.split()
        return [speeds[int(beam)] * (2 if name == "quick" else 1), 600.0, math.nan, math.nan]

    monkeypatch.setattr(script, "check", lambda _: None)
    monkeypatch.setattr(script, "figures_of", figures_of)
    row = SimpleNamespace(turn=lambda: None, measured=lambda: script.Measured(100.0, 1300.0, 9.5))
    monkeypatch.setattr(script, "Process", lambda **_: row)
    given = ["run", "in", "--engines", "native", "--tokens", "512",
             "--peer", "slow=slow {beam}", "--peer", "quick=quick {beam}"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_decode.py", *given])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| native | greedy | 512 | 100 | 0.62 | 1,300 | 9.50 |  |  |  |  |" in lines
    assert "| native | beam 5 | 512 | 100 | 2.50 | 1,300 | 9.50 |  |  |  |  |" in lines
    assert "| quick | beam 5 |  | 40 |  | 600 |  |  |  |  |  |" in lines


def test_what_a_peer_tells_is_read_and_silence_is_named(script) -> None:
    figures = '{"sents_per_s_decode": 5.5, "out_tok_per_s_decode": 70, "peak_rss_mb": 300}'
    peer = script.Peer(f"echo hello; echo '{figures}'")
    peer.turn()
    peer.turn()
    found = peer.measured()
    assert found[:2] == (5.5, 70)
    assert found.peak == 300
    assert math.isnan(found.bleu)
    for words in ("hello", "5", "[]", '{"sents_per_s_decode": null}'):
        with pytest.raises(UserError, match="no sents_per_s_decode, out_tok_per_s_decode from: ec"):
            script.Peer(f"echo '{words}'").turn()


def test_ctranslate2_is_in_memory_once_when_its_rows_are_measured(
    script, monkeypatch, tmp_path
) -> None:
    loaded: list[tuple[int, int]] = []

    class Translator:
        def __init__(self, *_: Any, inter_threads: int, intra_threads: int, **__: Any) -> None:
            loaded.append((inter_threads, intra_threads))

        def translate_batch(self, lines: list[Any], **_: Any) -> list[Any]:
            return [SimpleNamespace(hypotheses=[["a"]])] * len(lines)

    class Pieces:
        spelled = decode = staticmethod(str)
        pieces = staticmethod(lambda ids: ["a"] * len(ids))

        def __len__(self) -> int:
            return 1

    at_peak: list[list[tuple[int, int]]] = []
    monkeypatch.setitem(sys.modules, "ctranslate2", SimpleNamespace(Translator=Translator))
    monkeypatch.setattr(Tokenizer, "load", lambda _: Pieces())
    monkeypatch.setattr(script, "peak", lambda _: at_peak.append([*loaded]) or 1.0)
    (tmp_path / "in").write_text("a\nb\nc\n", encoding="utf-8")
    options = argparse.Namespace(
        input=tmp_path / "in", reference=None, device="cpu", threads=2, workers=2
    )
    script.measure(
        options, range(2), engine="direct", search="greedy", tokens=9, export="export", single=2
    )
    assert at_peak == [[(2, 1)]]
    assert loaded == [(2, 1), (1, 2)]  # then for one sentence at a time, with all threads


def test_what_cannot_be_measured_is_told_before_any_row(script, monkeypatch, tmp_path) -> None:
    files = {name: tmp_path / name for name in ("none", "one", "two")}
    for lines, file in enumerate(files.values()):
        file.write_text("a\n" * lines, encoding="utf-8")

    def refused(run: Path, source: Path, *more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bench_decode.py", str(run), str(source), *more])
        with pytest.raises(UserError) as error:
            script.main()
        return str(error.value)

    assert "gone does not exist" in refused(tmp_path / "gone", files["one"])
    monkeypatch.setattr(bundle, "find", lambda run: run)
    assert "none is empty" in refused(tmp_path, files["none"])
    assert "one has 1 line, " in refused(tmp_path, files["two"], "--reference", str(files["one"]))


def test_a_row_translates_when_it_is_its_turn(script, monkeypatch, tmp_path) -> None:
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
    monkeypatch.setattr(script, "__file__", str(row))
    monkeypatch.setattr(sys, "argv", ["bench_decode.py"])
    one, other = script.Process(engine="a", tokens=5), script.Process(engine="b", tokens=7)
    for process in (one, other, one):
        process.turn()
    assert other.measured()[:2] == (1, 7)
    assert one.measured()[:2] == (2, 5)
    with pytest.raises(SystemExit) as error:
        script.Process(engine="ill", tokens=5)
    assert error.value.code == 1
