"""The records of a run: config.yaml, provenance.json and train.log.

provenance.json tells what made the run, and how far it has come. Lightning is not imported here:
commands that only look at a run need none of it.
"""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
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


def write(run: Path, **facts: Any) -> None:
    """Add facts to the record, creating it with the machine and the versions."""
    path = run / FILE
    record = read(run) if path.exists() else _machine()
    text = f"{json.dumps(record | facts, indent=2, ensure_ascii=False)}\n"
    with replacing(path) as file:
        # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
        file.write(text.encode(errors="backslashreplace"))


def write_beginning(run: Path, config: Mapping[str, Any], **facts: Any) -> None:
    """Write down what a run begins with, or goes on with."""
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    with replacing(run / "config.yaml") as file:
        file.write(text.encode())
    write(run, status="unfinished", **facts)


def further_call(run: Path, step: int) -> dict[str, Any]:
    """Return the fact `calls`: those after the first, with this one, which goes on after `step`.

    Nothing of a run that has no record yet, whose first call is this one.
    """
    if not (run / FILE).exists():
        return {}
    before, this = noted(run, "calls") or [], {"step": step, **_call()}
    return {"calls": [*(call for call in before if call != this), this]}


def device_name(*, gpu: bool) -> str:
    """Name what computes: the GPU, or the processor."""
    if gpu:
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line[:10] == "model name")
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


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
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _commit() -> str | None:
    """Return the checkout's commit, `+` if the code is not all of it; None outside a checkout.

    Files that are new count, as a model's module; those beside the code do not.
    """
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # not of a repository around a .venv
        git("ls-files", "--error-unmatch", here.name)
        changes = git("status", "--porcelain", "--", ":/translate", ":/conf")
        return git("rev-parse", "HEAD") + ("+" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing of a full disk, as logging does at each line: the console has them too."""


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Write everything that is logged meanwhile to a file, too, and the error that ended it."""
    root = logging.getLogger()
    logging.getLogger("translate").setLevel(logging.INFO)
    handler = _LogFile(path, encoding="utf-8", delay=True)  # a run that is refused has no log
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    root.addHandler(handler)
    try:
        yield
    except Exception as error:
        if handler.stream is not None:  # there is a log
            handler.handle(logging.makeLogRecord({"msg": f"ended: {error}"}))
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
