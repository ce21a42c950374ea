"""provenance.json: what made a run, and how far it has come."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from translate import machine, run_folder
from translate.files import replacing

# reading is for rooms below this one, too
FILE, read, noted, run_status = (
    run_folder.RECORD, run_folder.read_record, run_folder.noted, run_folder.status,
)  # fmt: skip
_PACKAGES = ("torch", "lightning", "hydra-core", "sentencepiece", "datasets", "sacrebleu")


def configuration(run: Path) -> dict[str, Any] | None:
    """What a run was started with, by its config.yaml; None where that cannot be read."""
    try:
        written = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None
    return written if isinstance(written, dict) else None


def write(run: Path, **facts: Any) -> None:
    """Add facts to the record, creating it with the machine and the versions."""
    path = run / FILE
    record = read(run) if path.exists() else _machine()
    text = f"{json.dumps(record | facts, indent=2, ensure_ascii=False)}\n"
    with replacing(path) as file:
        # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
        file.write(text.encode(errors="backslashreplace"))


def further_call(run: Path, step: int) -> dict[str, Any]:
    """The fact `calls`: those after the first, with this one, which goes on after so many steps.

    Nothing of a run that has no record yet, whose first call is this one.
    """
    if not (run / FILE).exists():
        return {}
    before, this = noted(run, "calls") or [], {"step": step, **_call()}
    return {"calls": [*(call for call in before if call != this), this]}


def computing(*, gpu: bool) -> dict[str, Any]:
    """The facts of what computes, in each process."""
    return {
        "accelerator": "gpu" if gpu else "cpu",
        "device": device_name(gpu=gpu),
        "threads": torch.get_num_threads(),
    }


def device_name(*, gpu: bool) -> str:
    """What computes: the GPU, or the processor."""
    return torch.cuda.get_device_name() if gpu else _processor()


def _machine() -> dict[str, Any]:
    return {
        "status": "unfinished",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(gpu=False),
        "cores": machine.cores(),
        "python": platform.python_version(),
        **_call(),
    }


def _call() -> dict[str, Any]:
    return {
        "command": sys.argv,
        "commit": _commit(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(names)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str | None:
    """The checkout's commit, `+` if the code is not all of it; None outside a checkout.

    Files that are new count, as a model's module; those beside the code do not.
    """
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", Path(__file__).name
        )  # not of a repository around a .venv
        code = (":/translate", ":/conf")
        status = git("status", "--porcelain", "--untracked-files=all", "--", *code)
        return git("rev-parse", "HEAD") + ("+" if status else "")
    except (OSError, subprocess.CalledProcessError):
        return None
