"""translate export, and serving what it wrote."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path

import pytest

LINES = ["der Hund schläft .", "", "ein Haus"]
GREEDY = ["search=greedy", "search.max_length_ratio=0.0", "search.max_length_offset=5"]


def test_a_model_is_exported_and_served(program, run: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
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


def test_onnx_files_translate_without_the_program(
    program, run: str, tmp_path: Path, monkeypatch, capsys, unchecked
) -> None:
    pytest.importorskip("onnxruntime")
    done = program("export", run, "to=onnx", "output=there", "sentences=5")
    assert (done.status, done.out) == (0, "")
    assert "float32: 5 sentences translated greedily by both" in done.err
    assert len(done.err.splitlines()) < 5  # of ours alone, none of the libraries'
    expected = program("text", run, "guard=none", "split=none", *GREEDY, *LINES).out
    spec = importlib.util.spec_from_file_location("decoder", tmp_path / "there" / "decoder.py")
    assert spec is not None
    assert spec.loader is not None
    decoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(decoder)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in LINES)))
    decoder.main()
    assert capsys.readouterr().out == expected
    told = json.loads((tmp_path / "there" / "graphs.json").read_bytes())
    assert (told["source_language"], told["target_language"]) == ("de", "en")


def test_graphs_are_written_in_float32_alone(program, run: str) -> None:
    done = program("export", run, "to=onnx", "quantization=int8")
    assert done.status != 0
    assert "quantization = int8 is for to=ctranslate2: to=onnx writes float32" in done.err
