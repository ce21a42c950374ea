"""From sentences to the files of an evaluation, with a translator made of two lines."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from translate.errors import UserError
from translate.evaluation import report
from translate.evaluation.metrics import evaluate
from translate.evaluation.report import Report, fingerprint, render, write
from translate.evaluation.run import evaluate_split

SOURCES = ["uno dos", "", "tres " * 12]
REFERENCES = [["one two", "1 2"], ["nothing"], ["three " * 12]]


@dataclass(frozen=True)
class Translation:
    text: str


class Shouter:
    """Translates into capitals, with a worse second choice."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stream(self, lines: Iterable[str], /) -> Iterator[list[Translation]]:
        for line in lines:
            self.asked.append(line)
            yield [Translation(line.strip().upper()), Translation("second")]


def run(folder: Path, translator: Shouter | None = None, **changes: object) -> Report:
    arguments: dict[str, object] = {
        "folder": folder,
        "split": "test",
        "command": "translate evaluate run='¿é'",
        "decoding": {"kind": "beam", "beam_size": 4},
        "model_sha256": "ab12",
    }
    return evaluate_split(translator or Shouter(), SOURCES, REFERENCES, **(arguments | changes))


def test_the_best_translations_are_written_in_order(tmp_path: Path) -> None:
    run(tmp_path / "evaluation")
    content = (tmp_path / "evaluation" / "test.hyp").read_bytes()
    assert content.decode() == "UNO DOS\n\n" + " ".join(["TRES"] * 12) + "\n"
    assert not list((tmp_path / "evaluation").glob(".*")), "a temporary file was left"


def test_the_json_says_how_to_repeat_and_check_the_figures(tmp_path: Path) -> None:
    result = run(tmp_path)
    found = json.loads((tmp_path / "test.json").read_text("utf-8"))
    hypotheses = (tmp_path / "test.hyp").read_text("utf-8").split("\n")[:-1]
    expected = evaluate(hypotheses, REFERENCES)
    assert {key: found[key] for key in ("bleu", "chrf", "ter")} == expected.as_dict()
    assert (found["items"], found["references"], found["empty_hypotheses"]) == (3, 4, 1)
    assert [bucket["items"] for bucket in found["buckets"]] == [2, 1]
    assert found["decoding"] == {"kind": "beam", "beam_size": 4}
    assert found["command"] == "translate evaluate run='¿é'"
    assert found["seconds"] >= 0
    assert found["sentences_per_second"] > 0
    hashed = hashlib.sha256((tmp_path / "test.hyp").read_bytes()).hexdigest()
    assert found["sha256"]["hypotheses"] == hashed == result.hypotheses_sha256
    assert found["sha256"]["model"] == "ab12"


def test_progress_counts_sentences(tmp_path: Path) -> None:
    seen: list[int] = []
    run(tmp_path, progress=seen.append)
    assert seen == [1, 2, 3]


def test_counts_are_checked_before_anything_is_translated(tmp_path: Path) -> None:
    translator = Shouter()
    with pytest.raises(UserError, match=r"3 .* 2 items"):
        evaluate_split(
            translator,
            SOURCES,
            REFERENCES[:2],
            folder=tmp_path,
            split="dev",
            command="",
            decoding={},
            model_sha256="",
        )
    assert translator.asked == []


def test_fingerprints_tell_where_strings_end() -> None:
    assert fingerprint([["a", "b"]]) != fingerprint([["a\nb"]]) != fingerprint([["a"], ["b"]])
    assert fingerprint(["¿é"]) == fingerprint(["¿é"])


def test_a_hypothesis_with_a_newline_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    result = run(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="sentence 2 contains a newline"):
        write(result, ["a", "b\nc", "d"], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(report.os, "fsync", full)
    with pytest.raises(
        UserError, match=f"cannot write the evaluation to {tmp_path}: No space left"
    ):
        write(result, ["new"], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_infinite_setting_is_refused_before_the_old_report_is_touched(tmp_path: Path) -> None:
    result = run(tmp_path)
    before = (tmp_path / "test.hyp").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(replace(result, decoding={"alpha": float("inf")}), ["new"], tmp_path)
    assert (tmp_path / "test.hyp").read_bytes() == before


def test_a_path_that_is_no_utf8_survives_in_the_command(tmp_path: Path) -> None:
    command = os.fsdecode(b"run=runs/caf\xe9")
    run(tmp_path, command=command)
    assert json.loads((tmp_path / "test.json").read_bytes())["command"] == command


def test_the_terminal_shows_scores_signatures_buckets_and_speed(tmp_path: Path) -> None:
    result = run(tmp_path)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render(result))
    shown = console.export_text()
    assert f"{result.scores.bleu.score:.2f}" in shown
    assert "nrefs:var" in shown
    assert "11–15" in shown
    assert "sentences/s, 1 empty" in shown
