"""What is counted of a model's answers: accepted ones, signs carried over, terms realised."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCES = ["eine rote Karte", "die Karte liegt hier", "meine Karte", "eine alte Katze"]
REFERENCES = ["a red card", "the card lies here", "my card", "an old cat"]


def test_terms_are_those_of_nearly_all_references(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.glossary(SOURCES, REFERENCES) == {"karte": "card"}
    for name, lines in (("s", SOURCES), ("t", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files: list[str] = []

    def program(run: str, lines: list[str], *asked: str) -> list[dict[str, Any]]:
        files.extend(Path(each.removeprefix("terms=")).read_text("utf-8") for each in asked)
        right = 3 if asked else 1
        return [{"text": text if i < right else "a map"} for i, text in enumerate(REFERENCES)]

    monkeypatch.setattr(script, "translated", program)
    given = ["terms", "run", str(tmp_path / "s"), "--reference", str(tmp_path / "t")]
    monkeypatch.setattr(sys, "argv", ["robustness.py", *given])
    script.main()
    head, without, with_terms = capsys.readouterr().out.splitlines()
    assert head == "1 terms, 3 times in 4 lines"
    assert " 33.3% of the terms" in without
    assert "100.0% of the terms" in with_terms
    assert files == ["karte\tcard\n"]


def test_phrases_are_compared_without_case_and_end_marks(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "phrases"
    path.write_text("Hola.\tHello.|Hi.\nNo.\tNo.\n", encoding="utf-8")
    monkeypatch.setattr(script, "translated", lambda *_: [{"text": "hi!"}, {"text": "Don't."}])
    monkeypatch.setattr(sys, "argv", ["robustness.py", "phrases", "run", str(path)])
    script.main()
    out = capsys.readouterr().out
    assert "✗ No. → Don't." in out
    assert out.endswith("1 of 2 are accepted\n")
