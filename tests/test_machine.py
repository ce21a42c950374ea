"""A container's share of its machine counts, and memory is kept until it is given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from translate import machine
from translate.cli.main import main
from translate.machine import keep_memory

PROC = "4:memory:/docker/a\n3:cpuset:/\n1:cpu,cpuacct:/docker/a\n0::/slice/service\n"
V1 = "cpu/docker/a/cpu.cfs"
V1_UNLIMITED = str(2**63 - 4096)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Writes control groups; a machine of 16 cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(machine, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "proc")

    def write(files: dict[str, str]) -> None:
        (tmp_path / "proc").write_text(PROC)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    return write


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 16),
        ({"slice/service/cpu.max": "max 100000", "cpu.max": "max 100000"}, 16),
        ({"slice/service/cpu.max": "250000 100000"}, 2),
        ({"slice/service/cpu.max": "50000 100000"}, 1),
        ({"slice/service/cpu.max": "max 100000", "slice/cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "300000 100000"}, 3),  # a container that sees its own group alone
        ({f"{V1}_quota_us": "-1", f"{V1}_period_us": "100000"}, 16),
        ({f"{V1}_quota_us": "500000", f"{V1}_period_us": "100000"}, 5),
        ({"cpu/cpu.cfs_quota_us": "600000", "cpu/cpu.cfs_period_us": "100000"}, 6),
    ],
)  # fmt: skip
def test_the_cores_that_are_granted(groups, files: dict[str, str], expected: int) -> None:
    groups(files)
    assert machine.cores() == expected


def test_cores_that_a_process_is_bound_to_count(groups, monkeypatch: pytest.MonkeyPatch) -> None:
    groups({"cpu.max": "900000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert machine.cores() == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"slice/service/memory.max": "max"}, None),
        ({"slice/service/memory.max": "max", "slice/memory.max": "3000"}, 3000),
        ({"memory/docker/a/memory.limit_in_bytes": V1_UNLIMITED}, None),
        ({"memory/memory.limit_in_bytes": "5000"}, 5000),
    ],
)
def test_the_memory_that_is_granted(groups, files: dict[str, str], expected: int | None) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups(files)
    assert machine.memory() == (expected or whole)


def test_where_there_are_no_groups_all_is_granted(groups) -> None:
    assert machine.cores() == 16


@pytest.mark.parametrize(("asked", "expected"), [(None, "1"), ("2", "2")])
def test_the_program_starts_no_more_threads_than_it_gets_cores(
    asked: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setenv("OMP_NUM_THREADS", asked or "")
    if asked is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    assert main(["--version"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == expected


# a process of its own: thresholds hold for the whole one
GAPS = """
from pathlib import Path
import torch
from translate.machine import give_back_memory, keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

assert keep_memory()
before = resident()
tensors = [torch.ones(2**18) for _ in range(200)]  # a MiB each
del tensors[:-1]
with_gaps = resident() - before
give_back_memory()
print(with_gaps, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_gaps_are_kept_until_they_are_given_back() -> None:
    if not keep_memory():
        pytest.skip("the C library is not glibc")
    done = subprocess.run([sys.executable, "-c", GAPS], capture_output=True, text=True, check=True)
    with_gaps, without = map(int, done.stdout.split())
    assert with_gaps > 190
    assert without < 20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: object())
    assert not machine.keep_memory()
    machine.give_back_memory()
