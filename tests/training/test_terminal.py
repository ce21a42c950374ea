"""A run as a person at a terminal sees it."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from translate.cli.main import main


def seen_in_a_terminal(arguments: list[str]) -> tuple[int, str]:
    """The exit status, and all that the program wrote to a terminal of 120 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(all_of, ours)
        with os.fdopen(its, "w") as terminal, redirect_stdout(terminal), redirect_stderr(terminal):
            status = main(arguments)
        seen = written.result()
    os.close(ours)
    return status, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())


def all_of(terminal: int) -> bytes:
    """What is written until the other side is closed, of which Linux makes an error."""
    written = bytearray()
    try:
        while some := os.read(terminal, 65536):
            written += some
    except OSError:
        pass
    return bytes(written)


def test_training_shows_one_bar_with_loss_speed_and_time(
    overrides: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(logging.root, "handlers", [])  # the program sends all to its stderr
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    status, seen = seen_in_a_terminal(["train", f"run={tmp_path / 'run'}", *overrides()])
    assert status == 0, seen
    lines = [line.rstrip() for line in re.split(r"[\r\n]", seen)]
    bar = next(line for line in reversed(lines) if line.startswith("━") and "tokens/s" in line)
    assert re.search(r"━+ 12/12 \d:\d\d:\d\d • 0:00:00", bar), bar
    assert re.search(r"loss: \d\.\d{3} tokens/s: \d+ learning rate: \d\.\d\de-\d\d", bar), bar
    # messages stand above the bar, whole
    validated = [line for line in lines if "dev BLEU" in line]
    assert [line.partition(":")[0] for line in validated] == ["step 6", "step 12", "finished"]
    assert sum(line.startswith("  hypothesis ") for line in lines) == 6
