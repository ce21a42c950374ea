"""translate export, and serving what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ctranslate2")

LINES = ["der Hund schläft .", "", "ein Haus"]
GREEDY = ["search=greedy", "search.max_length_ratio=0.0", "search.max_length_offset=5"]


def test_a_model_is_exported_and_served(program, run: str, tmp_path: Path) -> None:
    done = program("export", run, "output=there, =", "quantization=int8", "sentences=5")
    assert (done.status, done.out) == (0, "")
    assert "float32: 5 sentences translated greedily by both" in done.err
    assert "int8: 5 sentences" in done.err
    assert (tmp_path / "there, =" / "model.bin").is_file()
    serve = ["text", run, "engine=ctranslate2", "export=there, =", "workers=1"]
    served = program(*serve, *GREEDY, *LINES)
    assert served.status == 0
    lines = served.out.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["engine=ctranslate2", "x"], "export.json cannot be read"),
        (["engine=ctranslate2", "search=sampling"], "search"),
        (
            ["engine=ctranslate2", "search.coverage_penalty=0.2", "replace_unknown=true", "x"],
            "engine=ctranslate2 has no such option",
        ),
        (["engine=ctranslate2", "replace_unknown=true", "x"], "reads attention"),
        (["engine=ctranslate2", "precision=bf16", "x"], "precision = bf16 is for engine=native"),
        (["export=there", "x"], "export = there is for engine=ctranslate2"),
        (["engine=fast", "x"], "engine = 'fast'"),
    ],
)
def test_what_an_engine_lacks_is_told(program, run: str, arguments, line) -> None:
    done = program("text", run, *arguments)
    assert done.status != 0
    assert done.out == ""
    assert line in done.err
