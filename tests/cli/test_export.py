"""translate export, and serving what it wrote."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from translate import machine
from translate.errors import UserError
from translate.evaluation.judging import read_sha256
from translate.extras.model_export import check_replaceable
from translate.inference import translator
from translate.inference.bundle import of_run as load_bundle
from translate.inference.forcing import TeacherForcing
from translate.machine import threads_restored
from translate.search.sampling import GreedySearch

LINES = ["der Hund schläft .", "", "ein Haus"]
GREEDY = ["search=greedy", "search.max_length_ratio=0.0", "search.max_length_offset=5"]


def test_a_model_is_exported_and_served(program, run: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    done = program("export", run, "output=there, =", "quantization=int8", "sentences=5")
    assert (done.status, done.out) == (0, "")
    assert "float32: both translated 5 sentences greedily" in done.err
    assert "int8: both translated 5 sentences" in done.err
    assert (tmp_path / "there, =" / "model.bin").is_file()
    serve = ["text", run, "engine=ctranslate2", "export=there, =", "workers=1"]
    served = program(*serve, *GREEDY, *LINES)
    assert served.status == 0
    lines = served.out.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False]


def test_a_place_that_cannot_be_written_is_told_before_the_work() -> None:
    with pytest.raises(UserError, match="cannot write to /dev/null"):
        check_replaceable(Path("/dev/null/export"))


def threads_of(search: type, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """PyTorch's threads whenever this kind of search is called from now on."""
    seen: set[int] = set()
    called = search.__call__

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.add(torch.get_num_threads())
        return called(*arguments, **options)

    monkeypatch.setattr(search, "__call__", watched)
    return seen


@pytest.mark.parametrize(
    ("worth", "chosen", "threads"), [(10**9, False, 1), (10**9, True, 3), (1, False, 3)]
)
def test_a_small_model_answers_each_line_on_one_thread(
    program, run: str, monkeypatch, worth: int, chosen: bool, threads: int
) -> None:
    seen = threads_of(GreedySearch, monkeypatch)
    monkeypatch.setattr(translator, "WORTH_THREADS", worth)
    monkeypatch.setattr(machine, "THREADS_ARE_CHOSEN", chosen)
    with threads_restored():
        torch.set_num_threads(3)
        assert program("text", run, "interactive=true", *GREEDY, *LINES).status == 0
        assert torch.get_num_threads() == 3
    assert seen == {threads}


def test_a_quantized_export_tells_how_to_get_its_bleu(program, run: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    done = program("export", run, "output=there, =", "quantization=int8", "sentences=5")
    (command,) = re.findall(r"the BLEU of int8: translate (.*)$", done.err, re.MULTILINE)
    evaluated = program(*shlex.split(command), "resamples=10")
    assert evaluated.status == 0, evaluated.err
    assert (tmp_path / "there, =-evaluation" / "test.json").is_file()
    assert f"and that of the original: {shlex.join(['translate', 'evaluate', run])}\n" in done.err
    assert "BLEU" not in program("export", run, "output=wide", "sentences=5").err


def test_what_was_exported_is_evaluated_in_batches(
    program, run: str, tmp_path: Path, monkeypatch
) -> None:
    """The engine takes all sentences at once; the perplexity is our own model's."""
    pytest.importorskip("ctranslate2")
    assert program("export", run, "output=there", "sentences=5").status == 0
    sizes, log_probs = [], TeacherForcing.log_probs
    monkeypatch.setattr(
        TeacherForcing, "log_probs",
        lambda self, *sides: (sizes.append(len(sides[0])), log_probs(self, *sides))[1],
    )  # fmt: skip
    evaluate = ["evaluate", run, "engine=ctranslate2", "export=there", "output=scores"]
    done = program(*evaluate, "tokens_per_batch=20", "resamples=10")
    assert done.status == 0, done.err
    told = "of the original model, not of ctranslate2"
    assert f"bits per character {told}" in " ".join(done.out.split())
    page = Path("scores", "test.html").read_text("utf-8")
    assert told in page
    figures = json.loads(Path("scores", "test.json").read_text("utf-8"))
    assert f"of {figures['likelihood']['of']}" == told
    assert sum(sizes) == 8
    assert len(sizes) > 3


def test_another_export_makes_an_evaluation_stale(program, run: str, trained: Path) -> None:
    pytest.importorskip("ctranslate2")
    assert program("export", run, "output=there", "sentences=5").status == 0
    decoding = {"engine": "ctranslate2", "export": "there"}
    before = read_sha256(trained, decoding)
    assert before.keys() == {"export"}
    assert read_sha256(trained, decoding) == before
    weights = bytearray(Path("there", "model.bin").read_bytes())
    weights[-1] ^= 1
    Path("there", "model.bin").write_bytes(weights)
    assert read_sha256(trained, decoding) != before


def test_an_export_that_was_cut_short_is_refused(program, run: str) -> None:
    pytest.importorskip("ctranslate2")
    assert program("export", run, "output=there", "sentences=5").status == 0
    os.truncate("there/model.bin", 10_000)
    done = program("text", run, "engine=ctranslate2", "export=there", *GREEDY, "x")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert "is damaged" in line
    remedy = shlex.join([run, "to=ctranslate2", "quantization=float32", "output=there"])
    assert line.endswith(f": translate export {remedy}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["engine=ctranslate2", "x"], "export.json cannot be read"),
        (
            ["engine=ctranslate2", "search.coverage_penalty=0.2", "replace_unknown=true", "x"],
            "engine=ctranslate2 has no such option",
        ),
        (["engine=ctranslate2", "replace_unknown=true", "x"], "needs attention, which"),
        (["engine=ctranslate2", "precision=bf16", "x"], "bf16 only applies to engine=native"),
        (["export=there", "x"], "export = there needs engine=ctranslate2"),
    ],
)
def test_what_an_engine_lacks_is_told(program, run: str, arguments, line) -> None:
    done = program("text", run, *arguments)
    assert done.status != 0
    assert done.out == ""
    assert line in done.err


def test_onnx_files_translate_without_the_program(
    program, run: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    pytest.importorskip("onnxruntime")
    done = program("export", run, "to=onnx", "output=there", "sentences=5")
    assert (done.status, done.out) == (0, "")
    assert "float32: both translated 5 sentences greedily" in done.err
    assert len(done.err.splitlines()) < 5  # of ours alone, none of the libraries'
    # such line breaks end no line
    read = [*LINES, "ein\rHaus", "ein\x0bHaus\x85\u2028der Hund", "...", "\u2060\u00ad", "😀"]
    expected = program("text", run, "guard=none", "split=none", *GREEDY, *read).out
    spec = importlib.util.spec_from_file_location("decoder", tmp_path / "there" / "decoder.py")
    assert spec is not None
    assert spec.loader is not None
    decoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(decoder)
    lines = "\ufeff" + "".join(f"{line}\n" for line in read)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    decoder.main()
    assert capsys.readouterr().out == expected
    about = tmp_path / "there" / "graphs.json"
    told = json.loads(about.read_bytes())
    about.write_text(json.dumps(told | {"max_length": 3}), "utf-8")
    lines = "der\nder Hund schläft heute\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    with pytest.raises(SystemExit, match="line 2 has 13 pieces, but at most 2 can be read: split"):
        decoder.main()
    assert (told["source_language"], told["target_language"]) == ("de", "en")


@pytest.mark.parametrize("output", ["output=.", "output=text.txt", "output=kept"])
def test_an_export_takes_the_place_of_nothing_else(
    program, run: str, tmp_path: Path, output: str
) -> None:
    (tmp_path / "text.txt").write_text("mine")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").touch()
    done = program("export", run, "to=torch", output)
    assert done.status != 0
    told = {"output=.": "'kept', which is not of an export", "output=kept": "contains 'mine'"}
    assert told.get(output, "is not a folder: name a new one") in done.err
    assert (tmp_path / "text.txt").read_text() == "mine"
    assert (tmp_path / "kept" / "mine").is_file()


def test_graphs_are_no_export_for_ctranslate2(program, run: str, tmp_path: Path) -> None:
    weights = load_bundle(run.removeprefix("run=")).weights_sha256
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "export.json").write_text(json.dumps({"weights_sha256": weights}))
    done = program("text", run, "engine=ctranslate2", "export=there", "x")
    assert done.status != 0
    assert "is not an export for CTranslate2" in done.err
