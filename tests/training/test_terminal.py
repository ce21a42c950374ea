"""A run as a person at a terminal sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path


def seen_in_a_terminal(command: list[str]) -> tuple[int, str]:
    """The exit status, and all that the program wrote to a terminal of 120 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    written = bytearray()
    try:
        while some := os.read(ours, 65536):
            written += some
    except OSError:  # Linux: the other side is closed
        pass
    os.close(ours)
    return process.wait(timeout=60), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())


def test_training_shows_one_bar_with_loss_speed_and_time(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "translate", "train", f"run={tmp_path / 'run'}", *overrides()]
    status, seen = seen_in_a_terminal(command)
    assert status == 0, seen
    lines = [line.rstrip() for line in re.split(r"[\r\n]", seen)]
    bar = next(line for line in reversed(lines) if line.startswith("━") and "tokens/s" in line)
    assert re.search(r"━+ 12/12 \d:\d\d:\d\d • 0:00:00", bar), bar
    assert re.search(r"loss: \d\.\d{3} tokens/s: \d+ learning rate: \d\.\d\de-\d\d", bar), bar
    # messages stand above the bar, whole
    validated = [line for line in lines if "dev BLEU" in line]
    assert [line.partition(":")[0] for line in validated] == ["step 6", "step 12", "finished"]
    assert sum(line.startswith("  hypothesis ") for line in lines) == 6
