"""The check of a GPU refuses where there is none, and its report hides nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"
# stands for an interpreter on a machine with CUDA: imports all but hydra, and all tests but one
# file's pass
PYTHON = """#!/bin/sh
case "$*" in
  *importlib*hydra*) exit 1 ;;
  *test_contract.py*) echo "1 failed"; echo "cuDNN is gone" >&2; exit 1 ;;
  *bench_attention.py*) echo "| fused | 1.0 |" ;;
  *pytest*) echo "5 passed" ;;
  *platform*) echo "Some GPU, torch 2.10" ;;
esac
"""


def check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments], env={**os.environ, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_without_cuda_torch_or_a_folder_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\ncase "$*" in *cuda*) exit 1 ;; esac\n')
    (tmp_path / "python").chmod(0o755)
    done = check(str(tmp_path / "out"), PYTHON=str(tmp_path / "python"))
    assert done.returncode == 2
    assert "finds no CUDA device here" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []
    assert "no folder for the report" in check(OUT="").stderr
    assert "no option --compile:" in check("--compile", str(tmp_path)).stderr
    done = check(str(tmp_path), PYTHON="/bin/false")
    assert (done.returncode, done.stderr) == (
        2, "gpu_check: error: /bin/false has no torch: name another with PYTHON=\n",
    )  # fmt: skip


def started(folder: Path, *arguments: str) -> list[list[str]]:
    """What would run on a machine with CUDA and all packages: a part's limit, then its command."""
    record = f"{{ printf '%s\\t' \"$@\"; echo; }} >> {folder}/parts"
    scripts = {"python": "exit 0", "timeout": record}
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = check(str(folder / "out"), *arguments, PYTHON=str(folder / "python"), PATH=path)
    assert done.returncode == 0, done.stderr
    return [line.split("\t")[:-1] for line in (folder / "parts").read_text().splitlines()]


def test_training_is_told_what_is_meant(
    tmp_path: Path, load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option of several values would take what follows it."""
    bench, told = load_script("bench_train"), []
    for _, _, script, *arguments in started(tmp_path, "--compiled"):
        if script == "scripts/bench_train.py":
            monkeypatch.setattr(sys, "argv", [script, *arguments])
            told.append(bench.arguments())
    eager, compiled = told
    for options in (eager, compiled):
        assert (options.models, options.precisions) == (["transformer"], ["bf16-mixed"])
        assert options.tokens == [25000]
    assert (eager.variant, compiled.variant) == ([("packed", ["trainer.packing=on"])], [])
    further = set(compiled.overrides) - set(eager.overrides)
    assert further >= {"trainer.packing=off", "trainer.compile=true"}
    assert "model.d_model=512" in eager.overrides


def test_the_report_says_what_passed_failed_and_was_skipped(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    done = check(str(tmp_path / "out"), "--compiled", PYTHON=str(python))
    assert done.returncode == 1, done.stderr
    report = (tmp_path / "out" / "gpu.md").read_text()
    device, kernels, flex, contract, searches, cost, loss, eager, compiled = report.split("\n## ")
    assert "Some GPU, torch 2.10" in device
    assert "passed" in kernels
    assert "5 passed" in kernels
    assert "-k on_cuda and bfloat16" in flex
    assert "FAILED with status 1" in contract
    assert "cuDNN is gone" in contract
    assert "1 failed" in contract
    assert "5 passed" in searches
    assert "passed" in cost
    assert "| fused | 1.0 |" in cost
    assert "passed" in loss
    for title, training in (("base Transformer", eager), ("compiled", compiled)):
        assert title in training
        assert "skipped" in training
        assert "hydra" in training
