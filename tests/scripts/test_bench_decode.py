"""The benchmark of decoding measures what it says, and each row in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_decode.py"


@pytest.fixture
def bench(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("bench_decode")


def test_a_row_counts_sentences_tokens_and_the_time_of_one(bench, monkeypatch, tmp_path) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    translated: list[int] = []

    def translate(lines: list[str]) -> list[int]:
        translated.append(len(lines))
        return [3] * len(lines)

    monkeypatch.setitem(bench.NATIVE, "native", lambda *_: translate)
    (tmp_path / "in").write_text("a\nb\u2028b\nc\nd\n", encoding="utf-8")
    options = argparse.Namespace(input=tmp_path / "in", repeats=2)
    row = bench.measure(
        options, engine="native", search="greedy", tokens=100, export=None, single=3
    )  # fmt: skip
    assert translated == [4, 4, 4, 1, 1, 1]  # the first to warm up
    assert row["sentences"] == 4  # every call took one second
    assert row["tokens"] == 12
    assert row["p50"] == 1000
    assert row["cpu"] >= 0


def test_the_searches_are_valid(bench) -> None:
    from translate.search import Search, build

    assert bench.SEARCHES
    assert all(isinstance(build(**search), Search) for search in bench.SEARCHES.values())


def test_help_tells_the_engines() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True
    )
    assert "engine=ctranslate2" in done.stdout
