"""What of this machine a process may have: in a container or a cluster's job a share of it.

Libraries ask how many cores there are, and start as many threads. Linux says in control groups what
is granted: /proc/self/cgroup names this process's, whose ancestors limit it too. A container may
see its own group alone, as if it were the root of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

THREADS_ARE_CHOSEN = "OMP_NUM_THREADS" in os.environ  # by whoever started this program
ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")


def cores() -> int:
    """How many cores' time this process gets."""
    found = [float(os.cpu_count() or 1)]
    if hasattr(os, "sched_getaffinity"):  # Linux
        found.append(len(os.sched_getaffinity(0)))
    quotas = _limits("cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    found += [
        numbers[0] / numbers[1] for numbers in quotas if len(numbers) == 2 and min(numbers) > 0
    ]
    return max(1, int(min(found)))


def memory() -> int:
    """How many bytes this process may hold."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits = _limits("memory", ["memory.max"], ["memory.limit_in_bytes"])
    return min(found + [limit for numbers in limits for limit in numbers if limit > 0])


def _limits(controller: str, files: list[str], files_of_v1: list[str]) -> Iterator[list[int]]:
    """The numbers that stand in these files of each group; none where they say `max`."""
    for line in _read(GROUPS).splitlines():
        number, controllers, path = [*line.split(":", 2), "?", "?"][:3]  # a line may be strange
        if not controllers and number == "0":
            root, names = ROOT, files
        elif controller in controllers.split(","):
            root, names = ROOT / controller, files_of_v1
        else:
            continue
        group = root / path.strip("/")
        for folder in [group, *group.parents]:
            words = " ".join(_read(folder / name) for name in names).split()
            if words and all(word.lstrip("-").isdecimal() for word in words):
                yield [int(word) for word in words]
            if folder == root:
                break


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
