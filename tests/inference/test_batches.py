"""Batches are of like length; workers do them whole, in order, and leave no process behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from translate import machine
from translate.errors import UserError
from translate.inference.batches import Workers, by_length, one_a_core, shared_out

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.integers(1, 30)), st.integers(1, 60), st.integers(1, 5))
def test_batches_hold_every_item_once_within_the_budget(lengths, budget, workers) -> None:
    alike, shares = list(by_length(lengths, budget)), shared_out(lengths, budget, workers)
    for batches in (alike, shares):
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget
    assert len(shares) <= -(-len(alike) // workers) * workers


@pytest.mark.parametrize(("workers", "count"), [(1, 9), (2, 10), (4, 12), (16, 9)])
def test_workers_get_equal_shares(workers, count) -> None:
    lengths, budget = [8 + i % 13 for i in range(1000)], 1800
    tokens = [sum(lengths[i] for i in batch) for batch in by_length(lengths, budget)]
    assert len(tokens) == 9
    assert min(tokens) < 0.5 * max(tokens)
    shares = [sum(lengths[i] for i in batch) for batch in shared_out(lengths, budget, workers)]
    assert len(shares) == count
    assert workers == 1 or min(shares) > 0.8 * max(shares)


def gone(pid: int) -> bool:
    """Within ten seconds; a process that has ended and that nobody has asked for counts as gone."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_workers_that_cannot_be_started_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", full)
    line = r"workers = 3: only 0 could be started \(Too many open files\): choose fewer"
    with pytest.raises(UserError, match=line), Workers(3, str) as workers:
        workers.map([1, 2])


def test_results_are_in_the_order_of_the_tasks() -> None:
    def work(task: int) -> tuple[int, int]:
        time.sleep(0.002 * (task % 3))
        return task * task, os.getpid()

    with Workers(2, work) as workers:
        for count in (9, 2, 0, 5):
            results = workers.map(list(range(count)))
            assert [square for square, _ in results] == [i * i for i in range(count)]
        pids = {pid for _, pid in workers.map(list(range(8)))}
        assert len(pids) == 2
        assert os.getpid() not in pids
    assert all(map(gone, pids))


def test_one_worker_or_one_task_needs_no_process() -> None:
    with Workers(1, lambda task: os.getpid()) as one, Workers(3, lambda task: os.getpid()) as three:
        assert set(one.map([1, 2])) | set(three.map([1])) == {os.getpid()}


def test_no_more_workers_are_started_than_there_are_tasks() -> None:
    def work(task: int) -> int:
        time.sleep(0.02)
        return os.getpid()

    with Workers(4, work) as workers:
        assert len(set(workers.map([1, 2]))) == 2
        assert len(set(workers.map(range(12)))) == 4


def test_one_a_core_where_forking_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(sys, "platform", "linux")
    for cores, expected in ((8, 6), (2, 2)):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        assert one_a_core(torch.device("cpu")) == expected
    assert one_a_core(torch.device("cuda", 0)) == 1
    monkeypatch.setattr(sys, "platform", "darwin")
    assert one_a_core(torch.device("cpu")) == 1


def test_an_error_of_a_worker_is_raised_with_its_place() -> None:
    def work(task: int) -> int:
        if task == 3:
            raise UserError("line 3 is too long: cut it")
        return task

    with pytest.raises(UserError, match="line 3 is too long") as error, Workers(2, work) as workers:
        workers.map([1, 2, 3, 4])
    assert "test_batches.py" in error.value.__notes__[0]


class WantsArguments(Exception):
    """Pickled without a word, and not to be made again."""

    def __init__(self, task: int, reason: str) -> None:
        super().__init__(f"task {task} failed: {reason}")


def fails(task: int) -> int:
    error = OSError("task 3 failed: a lock in it")
    error.held = threading.Lock()  # type: ignore[attr-defined]
    raise error


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (fails, "OSError: task 3 failed: a lock in it"),
        (lambda task: throw(WantsArguments(3, "no")), "WantsArguments: task 3 failed: no"),
        (lambda task: threading.Lock(), "cannot pickle '_thread.lock' object"),  # its answer
    ],
)
def test_what_cannot_be_sent_is_told_all_the_same(work, said: str) -> None:
    """Not as the death of a worker, nor of the thread that reads."""
    with pytest.raises((RuntimeError, TypeError), match=said) as error, Workers(2, work) as workers:
        workers.map([3, 3])
    assert "test_batches.py" in error.value.__notes__[0] or "in send" in error.value.__notes__[0]


def throw(error: Exception) -> None:
    raise error


def test_a_worker_that_dies_is_noticed() -> None:
    def work(task: int) -> int:
        if task == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with pytest.raises(UserError, match=r"has died.*workers") as error, Workers(2, work) as workers:
        workers.map([1, 2, 3, 4])
    assert not isinstance(error.value, OSError)  # a broken pipe would pass for our reader's


HANDLED = """
import signal
from translate.inference.batches import Workers
signal.signal(signal.SIGTERM, lambda *_: None)  # as a server that ends when it is ready to
for _ in range(3):
    try:
        with Workers(2, str) as workers:
            workers.map([lambda: 0, 1])  # cannot be sent: the block ends right after the fork
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_handler_that_only_takes_note_keeps_no_worker_alive() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANDLED], timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.split()) == 3


KILLED = """
import os, signal
from translate.inference.batches import Workers
with Workers(3, lambda task: os.getpid()) as workers:
    print(*workers.map(range(6)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_AT_WORK = """
import os, signal, threading, time
from translate.inference.batches import Workers
threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGKILL]).start()
with Workers(2, lambda task: time.sleep(0.6) or "x" * 10**6) as workers:
    workers.map(range(6))
"""


def test_a_stream_that_is_not_read_to_its_end_leaves_no_word() -> None:
    script = """
from translate.inference.batches import Workers

def stream():
    with Workers(2, str) as workers:
        yield from workers.map([1, 2, 3])

some = stream()
print(next(some))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_workers_of_a_process_that_is_killed_end_by_themselves() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    pids = set(map(int, done.stdout.split()))
    assert len(pids) == 3
    at_work = subprocess.run(  # until the workers have ended, which write to the same pipe
        [sys.executable, "-c", KILLED_AT_WORK],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (at_work.stderr, at_work.returncode) == ("", -signal.SIGKILL)
    assert all(map(gone, pids))
