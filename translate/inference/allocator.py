"""Tells glibc when to keep the memory it has: page faults cost a CPU a quarter of a step."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

# From malloc.h. Every tensor over 128 KiB would else be mapped and unmapped on each use, and each
# of its pages zeroed by the kernel again (5,000,000 faults in a short run, 63 with these).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> bool:
    """Raise glibc's thresholds to 1 GiB; False where the C library has no `mallopt`."""
    mallopt = _of_glibc("mallopt")
    settings = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**30), (_M_TOP_PAD, 64 * 2**20))
    return mallopt is not None and all(mallopt(name, value) for name, value in settings)


def give_back_memory() -> bool:
    """Return the pages of all that is free, gaps between tensors too; False as `keep_memory`.

    Tensors of ever other sizes leave gaps that none of the next fits, and they add up.
    """
    trim = _of_glibc("malloc_trim")
    if trim is None:
        return False
    trim(0)
    return True


def _of_glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where it is not glibc: macOS, musl, Windows."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
