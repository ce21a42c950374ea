"""Memory is kept while tensors come and go, and given back when that is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from translate.inference.allocator import keep_memory

# a process of its own: thresholds hold for the whole one
GAPS = """
from pathlib import Path
import torch
from translate.inference.allocator import give_back_memory, keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

assert keep_memory()
before = resident()
tensors = [torch.ones(2**18) for _ in range(200)]  # a MiB each
del tensors[:-1]
with_gaps = resident() - before
assert give_back_memory()
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
    from translate.inference import allocator

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert not allocator.keep_memory()
    assert not allocator.give_back_memory()
