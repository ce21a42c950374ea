"""Places of tags are compared with those of a reference."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from types import ModuleType

import pytest


def test_a_tag_is_right_between_the_same_letters(script: ModuleType) -> None:
    wanted = script.places("a <b>red</b> house")
    assert (wanted & script.places("a<b> red</b> house")).total() == 2
    assert (wanted & script.places("a <b>red house</b>")).total() == 1


def test_a_real_model_is_measured(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "pairs.tsv.gz"
    with gzip.open(table, "wt", encoding="utf-8") as file:
        file.write("<b>a</b> dog\t<b>ein</b> Hund\nno tags\tkeine\n<b>x</b>\tx\n")
    given = ["tests/bundles/transformer", "--table", str(table), "--fuzz", "5"]
    monkeypatch.setattr(script.logging, "disable", lambda: None)
    monkeypatch.setattr(sys, "argv", ["markup.py", *given])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "well-formed, with all tags: 5 of 5"
    assert lines[1] == "sentences with tags: 1; tags: 2"
    assert [line.partition(":")[0] for line in lines[2:]] == [
        "placed as in the reference, which is forced",
        "chrF of the text between them, translated with tags",
        "chrF of the text between them, translated without",
    ]
