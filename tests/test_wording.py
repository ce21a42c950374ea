"""What errors say."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata

import pytest

from translate.wording import counted, install


def test_an_extra_is_installed_by_the_names_of_its_packages() -> None:
    python, *pip = shlex.split(install("onnx"))
    assert python == sys.executable
    assert pip[:3] == ["-m", "pip", "install"]
    assert {name.partition(">")[0] for name in pip[3:]} == {"onnx", "onnxscript", "onnxruntime"}


def test_one_of_a_thing_is_singular() -> None:
    assert [counted(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
    assert [counted(n, "process", "processes") for n in (1, 2)] == ["1 process", "2 processes"]


def test_an_extra_of_a_clone_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install("onnx").endswith("-m pip install -e '.[onnx]' in the clone")
