"""Fewer threads beside other processes, and all again without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from translate import machine
from translate.training import threads
from translate.training.threads import ThreadCount


def counts(count: ThreadCount, *periods: tuple[float, float, float]) -> list[int]:
    """The threads after each period of (speed, waited, idle)."""
    seen = []
    for speed, waited, idle in periods:
        count.follow(speed, waited=waited, idle=idle)
        seen.append(count.count)
    return seen


def test_alone_all_threads_compute() -> None:
    assert counts(ThreadCount(2), *[(100.0, 0.05, 0.1)] * 9) == [2] * 9


def test_beside_another_process_fewer_compute_and_all_again_behind_it() -> None:
    beside = [(29.0, 0.7, 0.0), (60.0, 0.0, 0.0), (60.0, 0.0, 0.0)]
    assert counts(ThreadCount(2), *beside, (60.0, 0.0, 0.95), (105.0, 0.0, 0.0)) == [1, 1, 1, 2, 2]
    assert counts(ThreadCount(16), (9.0, 5.3, 0.0), (12.0, 1.2, 0.0), (12.0, 1.2, 0.0)) == [
        11, 11, 10,
    ]  # fmt: skip


def test_fewer_that_are_slower_are_not_kept_and_not_tried_again_soon() -> None:
    slower = [(80.0, 0.3, 0.0), (60.0, 0.0, 0.0)] + [(80.0, 0.3, 0.0)] * 25
    seen = counts(ThreadCount(2), *slower)
    assert seen[:4] == [1, 2, 2, 2]
    assert seen[: threads.REST].count(1) == 1
    assert 1 in seen[threads.REST :]


def test_what_linux_says_of_threads_and_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task, waited in (("1", 1_500_000_000), ("2", 500_000_000)):
        (tmp_path / "task" / task).mkdir(parents=True)
        (tmp_path / "task" / task / "schedstat").write_text(f"9 {waited} 3\n")
    (tmp_path / "task" / "3").mkdir()  # which has just ended
    (tmp_path / "stat").write_text("cpu  1 1 1 999 9\ncpu0 1 1 1 300 20\ncpu1 1 1 1 80 0\n")
    monkeypatch.setattr(machine, "TASKS", tmp_path / "task")
    monkeypatch.setattr(machine, "TIMES", tmp_path / "stat")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    assert machine.waited() == 2.0
    assert machine.idle() == 3.2
    monkeypatch.setattr(machine, "TASKS", tmp_path / "nothing")
    monkeypatch.setattr(machine, "TIMES", tmp_path / "nothing")
    assert (machine.waited(), machine.idle()) == (0.0, 0.0)
