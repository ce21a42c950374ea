"""The table of neighbours has a row for each combination, and the neighbours end with it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def test_each_combination_is_measured_beside_its_neighbours(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text").write_text("eins\nzwei\n")
    calls: list[tuple[str, str, int]] = []
    started: list[Any] = []
    popen = script.subprocess.Popen

    def watched(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    def program(threads: str, arguments: list[str]) -> None:
        busy = sum(process.poll() is None for process in started)
        calls.append((arguments[0], threads, busy))
        if arguments[0] == "train":
            run = Path(arguments[1].removeprefix("run="))
            run.mkdir()
            (run / "metrics.csv").write_text("step,tokens_per_second\n4,9\n9,\n9,100\n14,300\n")

    monkeypatch.setattr(script.subprocess, "Popen", watched)
    monkeypatch.setattr(script, "translate", program)
    given = [str(tmp_path / "run"), str(tmp_path / "text"), "data=toy", "--neighbours", "0", "1"]
    options = ["--threads", "1", "default", "--steps", "15", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["bench_neighbours.py", *given, *options])
    script.main()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| neighbours | threads | training, tokens/s | text, lines/s |"
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 0", "1", "200"], ["| 0", "default", "200"],
        ["| 1", "1", "200"], ["| 1", "default", "200"],
    ]  # fmt: skip
    assert calls == [
        (command, threads, count)
        for count in (0, 1)
        for threads in ("1", "default")
        for command in ("train", "text")
    ]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize("wrong", [["--steps", "9"], ["--threads", "many"]])
def test_what_cannot_be_measured_is_told(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[str]
) -> None:
    (tmp_path / "text").write_text("eins\n")
    monkeypatch.setattr(
        sys, "argv", ["bench_neighbours.py", "run", str(tmp_path / "text"), "data=toy", *wrong]
    )
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
