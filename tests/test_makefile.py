"""What `make` runs, in a copy with programs that say what they are asked."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make(folder: Path, *arguments: str) -> str:
    """Standard output."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_that_makes_the_environment_does_not_run_the_checks(clone: Path) -> None:
    program(clone / "scripts" / "check", 'echo "by ${PYTHON:-.venv}"')
    program(clone / ".venv" / "bin" / "python", "")
    (clone / ".venv" / ".installed").touch()
    assert "by .venv" in make(clone, "check", "PYTHON=/bin/false")


def test_an_environment_without_pip_is_mended(clone: Path) -> None:
    """`python -m venv` puts pip there last."""
    program(clone / ".venv" / "bin" / "python", 'case "$*" in *pip*) exit 1 ;; esac')
    program(clone / "whole", "")
    program(clone / "python3", 'case "$*" in *venv*) cp whole .venv/bin/python; echo "$@" ;; esac')
    assert make(clone, "-s", "install", "PYTHON=./python3") == "-m venv .venv\n"
    (clone / ".venv" / ".installed").unlink()
    assert make(clone, "-s", "install", "PYTHON=./python3") == "", "with pip it stays"


def test_what_is_installed_is_what_the_lock_says(clone: Path) -> None:
    program(clone / ".venv" / "bin" / "python", 'echo "$@"')
    assert "--constraint .venv/constraints.txt --editable .[dev]" in make(clone, "-s", "install")
    constraints = (clone / ".venv" / "constraints.txt").read_text().splitlines()
    locked = (clone / "requirements.lock").read_text().splitlines()
    names = [line.removesuffix(" \\") for line in locked if "==" in line.split(";")[0]]
    assert [line for line in constraints if not line.strip().startswith("#")] == names
    (clone / ".venv" / ".installed").unlink()
    make(clone, "-s", "install", "LOCK=/dev/null")
    assert (clone / ".venv" / "constraints.txt").read_text() == ""


def test_figures_lie_in_the_clone_whatever_it_is_called(clone: Path) -> None:
    (line,) = (line for line in make(clone, "-n", "soak").splitlines() if "-m soak" in line)
    assert f"SOAK_FIGURES={clone}/soak.txt" in shlex.split(line)
