"""The table of padding has a row a size of batch, and wrong settings are a line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest


def test_larger_pools_pad_less(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [
        "data=toy", "data.train=400", "data.dev=20", "data.test=20", "tokenizer=word",
        f"cache={tmp_path}", "--tokens", "200", "300", "--pools", "1", "40",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["bench_padding.py", *given])
    script.main()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| tokens a batch | pools of 1 batches | pools of 40 batches |"
    assert [row.split(" | ")[0] for row in rows] == ["| 200", "| 300"]
    for row in rows:
        small, large = (float(cell.rstrip("% |")) for cell in row.split(" | ")[1:])
        assert small > large > 0
