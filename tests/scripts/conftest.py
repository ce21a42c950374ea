"""The scripts are no package: each is loaded from its file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def load_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """`load_script("bench_train")`: its functions, without running it."""
    monkeypatch.syspath_prepend(SCRIPTS)  # what scripts share is imported from there

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # dataclasses look there, and the processes that a script starts
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def script(request: pytest.FixtureRequest, load_script: Callable[[str], ModuleType]) -> ModuleType:
    """The script that the file of its tests is named after."""
    return load_script(request.path.stem.removeprefix("test_"))
