"""The cores, threads and memory that this process may use.

In a container or a job of a cluster they are a share of the machine. Libraries ask how many cores
there are, and start as many threads. Linux grants a share by control groups: /proc/self/cgroup
names the group of this process, whose ancestors limit it too. A container may see its own group
alone, as if it were the root of all.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

THREADS_ARE_CHOSEN = "OMP_NUM_THREADS" in os.environ  # by whoever started this program
ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")
TASKS, TIMES = Path("/proc/self/task"), Path("/proc/stat")
# From malloc.h. Every tensor over 128 KiB would else be mapped and unmapped on each use, and each
# of its pages zeroed by the kernel again (5,000,000 faults in a short run, 63 with these).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def cores() -> int:
    """Return how many cores' time this process gets."""
    limits = [float(os.cpu_count() or 1)]
    if hasattr(os, "sched_getaffinity"):  # Linux
        limits.append(len(os.sched_getaffinity(0)))
    quotas = _limits("cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    limits += [quota / period for quota, period in quotas if quota > 0]
    return max(1, int(min(limits)))


def memory() -> int:
    """Return how many bytes this process may hold."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups = _limits("memory", ["memory.max"], ["memory.limit_in_bytes"])
    return min([total, *(limit for numbers in groups for limit in numbers if limit > 0)])


def waited() -> float:
    """Return how long this process's threads have waited for a core, in seconds; 0 off Linux."""
    times = (_read(path).split() for path in TASKS.glob("*/schedstat"))
    return sum(int(words[1]) for words in times if len(words) > 1) / 1e9


def idle() -> float:
    """Return how long the cores of this process have been idle, in seconds; 0 off Linux."""
    if not hasattr(os, "sched_getaffinity"):
        return 0.0
    ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    times = (line.split() for line in _read(TIMES).splitlines())
    # user, nice, system, idle, waiting for a disk …
    ticks = sum(int(each[4]) + int(each[5]) for each in times if each and each[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


def keep_memory() -> bool:
    """Let glibc keep the memory it has: page faults cost a CPU a quarter of a step.

    Its thresholds are raised to 1 GiB. False where the C library is another.
    """
    settings = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**30), (_M_TOP_PAD, 64 * 2**20))
    return all(_glibc("mallopt", name, value) for name, value in settings)


def give_back_memory() -> None:
    """Return the pages of all that is free, gaps between tensors too.

    Tensors of ever other sizes leave gaps that none of the next fits, and they add up.
    """
    _glibc("malloc_trim", 0)


def _glibc(name: str, *arguments: int) -> int:
    """Call a function of the C library; 0 where it is not glibc: macOS, musl, Windows."""
    try:
        return int(getattr(ctypes.CDLL(None), name)(*arguments))
    except (AttributeError, OSError, TypeError):
        return 0


@contextmanager
def threads_restored() -> Iterator[None]:
    """Give PyTorch its number of threads back after the block, whatever a library sets in it."""
    import torch  # not for the commands that only ask for cores

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _limits(controller: str, files: list[str], files_of_v1: list[str]) -> Iterator[list[int]]:
    """Yield the numbers in these files of each group; none where a file says `max`."""
    for line in _read(GROUPS).splitlines():
        number, controllers, path = line.split(":", 2)
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
