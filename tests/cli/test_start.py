"""A translation starts quickly: `translate text` imports nothing that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"lightning", "datasets", "pyarrow", "pandas", "matplotlib", "sacrebleu", "torchmetrics",
         "ctranslate2", "scipy", "sympy", "sklearn"}  # fmt: skip

TRANSLATING = """
import sys
from translate.cli.main import main
status = main(["text", sys.argv[1], "der Hund"])
print(status, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_translating_imports_nothing_of_training_and_of_pictures(trained: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATING, f"run={trained}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert not HEAVY & set(modules)
