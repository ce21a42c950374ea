"""What the scripts share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_the_memory_of_a_process_is_its_own_and_not_of_what_started_it() -> None:
    much = b"x" * 2**28  # getrusage would have the process below begin with it
    program = "from options import peak_memory; a = b'x' * 2**26; print(peak_memory())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=SCRIPTS, capture_output=True, text=True, check=True
    )
    assert 2**26 < int(done.stdout) < 2**27 < len(much)
