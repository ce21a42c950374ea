"""The pictures that are drawn from the code alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.parametrize("name", ["draw_patterns", "draw_positions"])
def test_a_picture_is_drawn(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [name, str(picture)])
    load_script(name).main()
    assert picture.read_bytes().startswith(b"\x89PNG")
    first = picture.read_bytes()
    load_script(name).main()
    assert picture.read_bytes() == first  # nothing in it is of the day or of chance
