"""What errors say."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata

import pytest

from translate.wording import install


def test_an_extra_is_installed_by_the_names_of_its_packages() -> None:
    python, *pip = shlex.split(install("onnx"))
    assert python == sys.executable
    assert pip[:3] == ["-m", "pip", "install"]
    assert {name.partition(">")[0] for name in pip[3:]} == {"onnx", "onnxscript", "onnxruntime"}


def test_an_extra_of_a_clone_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install("onnx").endswith("-m pip install -e '.[onnx]' in the clone")
