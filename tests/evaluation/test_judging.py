"""From sentences to the files of an evaluation, with a translator made of two lines."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from translate.errors import UserError
from translate.evaluation.judging import Judging, likelihood, translate_and_score
from translate.evaluation.metrics import corpus_scores
from translate.evaluation.report import (
    Comet,
    Likelihood,
    Report,
    perplexity,
    read,
    write_figures,
    write_hypotheses,
)
from translate.evaluation.test_sets import TestSet
from translate.extras.pages import evaluation_page
from translate.extras.report_tables import render, summary
from translate.extras.word_attention import WordAttention
from translate.inference.forcing import TooLongError
from translate.inference.translation import Score

SOURCES = ["uno dos", "", "tres " * 12]
REFERENCES = [["one two", "1 2"], ["nothing"], ["three " * 12]]


@dataclass(frozen=True)
class Translation:
    text: str


class Shouter:
    """Translates into capitals, with a worse second choice."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stream(self, lines: Iterable[str], /) -> Iterator[list[Translation]]:
        for line in lines:
            self.asked.append(line)
            yield [Translation(line.strip().upper()), Translation("second")]

    def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
        return [Score(-2.0 * len(text), len(text) + 1, ()) for text in targets]


def run(folder: Path, translator: Shouter | None = None, **changes: object) -> Report:
    arguments: dict[str, object] = {
        "folder": folder,
        "judging": Judging(tokenize="13a", resamples=20, seed=1),
        "command": "translate evaluate run='¿é'",
        "decoding": {"kind": "beam", "beam_size": 4},
        "model_sha256": "ab12",
    }
    test_set = changes.pop("test_set", TestSet("test", SOURCES, REFERENCES))
    return translate_and_score(translator or Shouter(), test_set, **(arguments | changes))


def test_the_best_translations_are_written_in_order(tmp_path: Path) -> None:
    run(tmp_path / "evaluation")
    content = (tmp_path / "evaluation" / "test.hyp").read_bytes()
    assert content.decode() == "UNO DOS\n\n" + " ".join(["TRES"] * 12) + "\n"
    assert not list((tmp_path / "evaluation").glob(".*")), "a temporary file was left"


def test_the_json_says_how_to_repeat_and_check_the_figures(tmp_path: Path) -> None:
    result = run(tmp_path)
    found = json.loads((tmp_path / "test.json").read_text("utf-8"))
    hypotheses = (tmp_path / "test.hyp").read_text("utf-8").split("\n")[:-1]
    expected = corpus_scores(hypotheses, REFERENCES)
    assert {key: found[key] for key in ("bleu", "chrf", "ter")} == asdict(expected)
    assert (found["items"], found["references"], found["empty_hypotheses"]) == (3, 4, 1)
    assert [bucket["items"] for bucket in found["buckets"]] == [2, 1]
    assert found["decoding"] == {"kind": "beam", "beam_size": 4}
    assert found["command"] == "translate evaluate run='¿é'"
    assert found["seconds"] >= 0
    assert found["sentences_per_second"] > 0
    hashed = hashlib.sha256((tmp_path / "test.hyp").read_bytes()).hexdigest()
    assert found["sha256"]["hypotheses"] == hashed == result.hypotheses_sha256
    assert found["sha256"]["model"] == "ab12"


def test_translations_are_kept_where_no_pair_can_be_scored(tmp_path: Path) -> None:
    class Nearsighted(Shouter):
        def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
            raise TooLongError(dict.fromkeys(range(len(targets)), 9), 8)

    assert "perplexity" not in summary(run(tmp_path, Nearsighted()))
    assert json.loads((tmp_path / "test.json").read_text("utf-8"))["likelihood"] is None
    assert (tmp_path / "test.hyp").exists()


def test_a_fault_in_judging_costs_no_translation(tmp_path: Path) -> None:
    run(tmp_path)

    class Better(Shouter):
        def stream(self, lines: Iterable[str], /) -> Iterator[list[Translation]]:
            yield from ([Translation("better")] for _ in lines)

        def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
            raise MemoryError

    with pytest.raises(MemoryError):
        run(tmp_path, Better())
    assert (tmp_path / "test.hyp").read_text("utf-8") == "better\n" * 3
    told = r"test.hyp does not match the SHA-256 in test.json: evaluate it"
    with pytest.raises(UserError, match=told):
        read(tmp_path, "test")


def test_counts_are_checked_before_anything_is_translated(tmp_path: Path) -> None:
    translator = Shouter()
    with pytest.raises(UserError, match=r"3 .* 2 items"):
        run(tmp_path, translator, test_set=TestSet("dev", SOURCES, REFERENCES[:2]))
    with pytest.raises(UserError, match="1 domain for 3 sentences"):
        run(tmp_path, translator, test_set=TestSet("dev", SOURCES, REFERENCES, ["news"]))
    assert translator.asked == []


def test_the_folder_is_checked_before_anything_is_translated(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    translator = Shouter()
    with pytest.raises(UserError, match=f"cannot write to {tmp_path / 'file'}: File exists"):
        run(tmp_path / "file", translator)
    assert translator.asked == []


def test_a_full_disk_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=f"cannot write {tmp_path}/test.hyp: No space left"):
        write_hypotheses("test", ["new"], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_infinite_setting_is_refused_before_the_old_report_is_touched(tmp_path: Path) -> None:
    result = run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_figures(replace(result, decoding={"alpha": float("inf")}), tmp_path, {"html": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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
    assert f"± {result.confidence['ter'].half_width:.2f}" in shown
    assert "sentences/s" in shown
    assert ", 1 empty" in shown
    assert "of the original model" not in shown


@pytest.mark.parametrize(("reference", "told"), [("UNO DOS", True), ("uno dos", False)])
def test_a_perfect_score_that_bleu_cannot_give_is_told(
    tmp_path: Path, reference: str, told: bool
) -> None:
    page = partial(evaluation_page, run="a", shown=1, attention={}, curves={})
    result = run(tmp_path, page=page, test_set=TestSet("test", ["uno dos"], [[reference]]))
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render(result))
    line = "BLEU is 0 because no translation has four tokens: go by chrF"
    for shown in (console.export_text(), (tmp_path / "test.html").read_text("utf-8")):
        assert (line in " ".join(shown.split())) == told
    (bucket,) = json.loads((tmp_path / "test.json").read_text("utf-8"))["buckets"]
    assert bucket["bleu"] == (None if told else 0)


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    result = run(tmp_path, test_set=TestSet("news[de].txt", SOURCES, REFERENCES))
    judged = Comet([0.5], "xl[large]", "0" * 64, 1, "2.2.7")
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(render(replace(result, comet=judged)))
    shown = console.export_text()
    assert "news[de].txt: 3 items" in shown
    assert "model:xl[large]" in shown


def test_slices_and_sentences_are_kept(tmp_path: Path) -> None:
    test_set = TestSet("test", SOURCES, REFERENCES, ["a", "b", "a"], {"uno": 3, "dos": 20})
    run(tmp_path, test_set=test_set)
    found = json.loads((tmp_path / "test.json").read_text("utf-8"))
    assert [(part["label"], part["items"]) for part in found["domains"]] == [("a", 2), ("b", 1)]
    assert [part["label"] for part in found["rarest_word"]] == ["never", "1–9", "no words"]
    assert found["likelihood"]["perplexity"] > 1
    assert found["confidence"]["bleu"]["signature"].startswith("nrefs:var|bs:20|seed:1")
    assert found["peak_memory_mib"]["process"] > 10
    lines = (tmp_path / "test.sentences.jsonl").read_text("utf-8").splitlines()
    third = json.loads(lines[2])
    assert (third["line"], third["hypothesis"]) == (3, " ".join(["TRES"] * 12))
    assert third["references"] == REFERENCES[2]
    assert 0 <= third["chrf"] <= 100


def test_an_evaluation_is_read_back_whole_or_not_at_all(tmp_path: Path) -> None:
    assert read(tmp_path, "test") is None
    result = run(tmp_path)
    stored = read(tmp_path, "test")
    assert stored is not None
    assert stored.hypotheses[0] == "UNO DOS"
    assert len(stored.hypotheses) == 3
    assert stored.figures["sha256"]["sources"] == result.sources_sha256
    assert stored.likelihood == result.likelihood
    (tmp_path / "test.json").write_text(json.dumps({"sha256": stored.figures["sha256"]}))
    with pytest.raises(UserError, match=r"test.json cannot be read .*'likelihood'"):
        read(tmp_path, "test")
    write_figures(result, tmp_path, {})
    (tmp_path / "test.hyp").write_text("other\n")
    told = r"test.hyp does not match the SHA-256 in test.json: evaluate it"
    with pytest.raises(UserError, match=told):
        read(tmp_path, "test")
    (tmp_path / "test.hyp").unlink()
    with pytest.raises(UserError, match=r"test.json cannot be read .*FileNotFound"):
        read(tmp_path, "test")
    (tmp_path / "test.json").write_text("{")
    with pytest.raises(UserError, match=r"test.json cannot be read"):
        read(tmp_path, "test")


def test_an_evaluation_from_before_unknown_words_were_counted_is_read(tmp_path: Path) -> None:
    result = run(tmp_path)
    figures = json.loads((tmp_path / "test.json").read_text("utf-8"))
    del figures["likelihood"]["unknown"]
    (tmp_path / "test.json").write_text(json.dumps(figures))
    stored = read(tmp_path, "test")
    assert stored is not None
    assert stored.likelihood == result.likelihood
    del figures["likelihood"]["tokens"]
    (tmp_path / "test.json").write_text(json.dumps(figures))
    with pytest.raises(UserError, match=r"test.json cannot be read .*'tokens'"):
        read(tmp_path, "test")


def test_a_translation_is_marked_beside_the_nearest_of_its_references(tmp_path: Path) -> None:
    page = partial(evaluation_page, run="a", shown=1, attention={}, curves={})
    references = [["something else", "UNO DREI", "UNO"]]
    run(tmp_path, page=page, test_set=TestSet("test", ["uno dos"], references))
    shown = (tmp_path / "test.html").read_text("utf-8")
    assert "UNO <mark>DOS</mark>" in shown
    assert "Words that the nearest reference does not have" in shown


def test_the_page_is_written_beside_and_shows_best_and_worst(tmp_path: Path) -> None:
    attention = WordAttention(("uno", "dos"), ("UNO",), np.array([[0.7, 0.3]]))
    page = partial(evaluation_page,
        run="runs/<a>", shown=1, attention={0: attention},
        curves={"dev/loss": [(1, 3.0), (2, 2.0)], "dev/bleu": [(1, 3.0)]},
    )  # fmt: skip
    references = [["UNO DOS"], ["x"], ["three"]]
    run(tmp_path, page=page, test_set=TestSet("test", SOURCES, references))
    shown = (tmp_path / "test.html").read_text("utf-8")
    worst, best = shown.index("Worst sentences"), shown.index("Best sentences")
    assert worst < best
    assert "runs/&lt;a&gt; on test" in shown
    assert re.search(r'fill: var\(--one\)"/>.*fill-opacity: 0.428', shown), "70 % beside 30 %"
    assert shown.count("<svg") == 5
    assert '<td dir="auto">1</td>' in shown[best:], "the first sentence has the best chrF"
    assert "<bdi>uno dos</bdi> → <bdi>UNO DOS</bdi>" in shown


class Coin:
    """Finds every piece as likely as one of four; its pieces are `size` characters long."""

    def __init__(self, size: int) -> None:
        self.size = size

    def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
        counts = [math.ceil((len(text) + 1) / self.size) for text in targets]
        return [Score(-count * math.log(4), count, ()) for count in counts]


def test_the_first_references_are_scored() -> None:
    found = likelihood(Coin(1), ["x", "y"], [["abc", "a much longer one"], ["defg"]])
    assert (found.tokens, found.characters) == (9, 9)
    assert found.perplexity == pytest.approx(4)
    assert found.bits_per_character == pytest.approx(2)


def test_what_the_vocabulary_leaves_out_is_counted(tmp_path: Path) -> None:
    class Illiterate(Coin):
        def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
            return [Score(-1.0, 2, (), unknown=1) for _ in targets]

    found = likelihood(Illiterate(1), ["x", "y"], [["abc"], ["defg"]])
    assert found.unknown == found.as_dict()["unknown"] == 2
    told = replace(run(tmp_path), likelihood=replace(found, left_out=1))
    assert "too long pairs left out: 1, <unk> in the references: 2" in summary(told)


def test_an_impossible_text_has_infinite_perplexity() -> None:
    assert perplexity(-1e6, 1) == math.inf
    assert Likelihood(-2.0, 1, 3).as_dict()["perplexity"] == pytest.approx(math.e**2)
    assert Likelihood(-1e6, 1, 3).as_dict()["perplexity"] is None  # JSON has no infinity


class ShortSighted(Coin):
    """Reads no more than four characters."""

    def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
        if long := {i: len(text) for i, text in enumerate(targets) if len(text) > 4}:
            raise TooLongError(long, 4)
        return super().score(sources, targets)


def test_pairs_longer_than_the_model_reads_are_left_out(caplog) -> None:
    assert likelihood(ShortSighted(1), ["x"], [["too long"]]) is None
    caplog.clear()
    with caplog.at_level("WARNING", logger="translate"):
        found = likelihood(ShortSighted(1), ["x", "y", "z"], [["abc"], ["too long"], ["defg"]])
    others = likelihood(Coin(1), ["x", "z"], [["abc"], ["defg"]])
    assert others is not None
    assert found == replace(others, left_out=1)
    assert "leaves out 1 of 3 pairs, which are longer than the model reads" in caplog.text
    assert caplog.text.endswith("model reads: line 2\n")
