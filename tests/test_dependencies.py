"""What the project stands on: no version known to be unsafe, and every byte of it vouched for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINNED = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE))
NAMED = [
    requirement
    for text in [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["dev"],
        *PROJECT["optional-dependencies"]["proof"],
    ]
    if (requirement := Requirement(text)).name != PROJECT["name"]
]
# Lower ones run code from a checkpoint or a configuration, or tear files.
FLOORS = {
    "lightning": "2.6.6", "torch": "2.10", "hydra-core": "1.3.8", "sentencepiece": "0.2.3",
    "safetensors": "0.8",
}  # fmt: skip


@pytest.mark.parametrize(("name", "floor"), FLOORS.items())
def test_no_version_known_to_be_unsafe_is_allowed(name: str, floor: str) -> None:
    (requirement,) = (requirement for requirement in NAMED if requirement.name == name)
    floors = [s.version for s in requirement.specifier if s.operator == ">="]
    assert max(map(Version, floors)) >= Version(floor)


def test_comet_is_given_a_pyarrow_that_takes_its_numpy() -> None:
    """pyarrow does not say which NumPy it needs, but refuses 1 from 26 on when imported."""
    extra = map(Requirement, PROJECT["optional-dependencies"]["comet"])
    (pyarrow,) = (requirement for requirement in extra if requirement.name == "pyarrow")
    (numpy,) = (requirement for requirement in NAMED if requirement.name == "numpy")
    assert pyarrow.specifier.contains("25.0.1")
    assert not pyarrow.specifier.contains("26.0.0")
    assert numpy.specifier.contains("1.26.4")


@pytest.mark.parametrize("requirement", NAMED, ids=str)
def test_the_lock_holds_what_the_project_asks_for(requirement: Requirement) -> None:
    """If not: make requirements.lock."""
    pinned = PINNED.get(requirement.name.lower())
    assert pinned is not None
    assert requirement.specifier.contains(pinned)


def test_every_line_of_the_lock_has_a_hash() -> None:
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) >= len(PINNED) > 50
    assert not [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]
