"""What `translate text` can be asked for beside translations."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from translate.cli.main import COMMANDS
from translate.inference import translator
from translate.inference.batches import Workers

SAMPLE = ["search=sample", "search.max_length_ratio=0.0", "search.max_length_offset=6"]
BEAM = ["search=beam", "search.max_length_ratio=0.0", "search.max_length_offset=9"]


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse", "sample"])
def test_every_search_keeps_a_prefix_and_its_rules(program, run: str, kind: str) -> None:
    rules = ["search.rules.no_repeat_ngram_size=2", "search.rules.banned=[dog,'a house']"]
    limits = ["search.max_length_ratio=0.0", "search.max_length_offset=8"]
    done = program("text", run, f"search={kind}", *limits, *rules, "prefix=the cat", "ein Hund")
    assert done.status == 0, done.err
    for line in done.out.splitlines():
        assert line.split("\t")[-1].startswith("the cat")
        assert "dog" not in line


def test_workers_and_fewer_bits_still_answer_every_line_in_order(program, run: str) -> None:
    lines = ["ein Hund", "", "die Katze sieht das Haus", "x"] * 3
    asked = ["text", run, *BEAM, "search.n_best=2", "tokens_per_batch=10"]
    alone, shared = program(*asked, *lines), program(*asked, "workers=2", *lines)
    assert alone.status == shared.status == 0, shared.err
    assert [line.split("\t")[::2] for line in alone.out.splitlines()] == [
        line.split("\t")[::2] for line in shared.out.splitlines()
    ]  # numbers and texts; a score may differ in the last digit, with the number of threads
    for precision in ("bf16", "int8"):
        rounded = program(*asked, f"precision={precision}", *lines)
        assert rounded.status == 0, rounded.err
        assert len(rounded.out.splitlines()) == len(alone.out.splitlines())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [([], 3), (["interactive=true"], 1), (["workers=1"], 1), (["workers=2"], 2)],
    ids=str,
)
def test_files_are_shared_among_a_worker_per_core(
    program, run: str, monkeypatch: pytest.MonkeyPatch, asked: list[str], expected: int
) -> None:
    counts = []

    class Watched(Workers[Any, Any]):
        def __init__(self, count: int, work: Callable[[Any], Any]) -> None:
            counts.append(count)
            super().__init__(count, work)

    monkeypatch.setattr(translator, "Workers", Watched)
    monkeypatch.setattr("translate.inference.translator.one_a_core", lambda device: 3)
    done = program("text", run, *asked, "ein Hund")
    assert done.status == 0, done.err
    assert counts == [expected]


def test_prefixes_and_constraints_are_read_line_by_line(program, run: str, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("a dog\n\n\n", encoding="utf-8")
    (tmp_path / "phrases, =").write_text("\tthe house\tsees\n\ncat\n", encoding="utf-8")
    done = program(
        "text", run, *BEAM, "prefixes=prefixes", "constraints=phrases, =", "ein Hund", "", "x"
    )
    assert done.status == 0, done.err
    first, second, third, end = done.out.split("\n")
    assert first.startswith("a dog")
    assert "the house" in first
    assert "sees" in first
    assert (second, end) == ("", "")
    assert "cat" in third


@pytest.mark.parametrize(
    ("line", "read"),
    [("der\x85 Hund", True), ("\u2028der Hund", True), ("der Hund. \u00ad", False)],
)
def test_alignment_has_a_column_for_each_source_piece_or_is_left_out(
    program, run: str, line: str, read: bool
) -> None:
    """What ends a line to some is a space to every command; what nobody sees is not read."""
    found = json.loads(program("text", run, "format=json", line).out)
    alignment = found["translations"][0]["alignment"]
    assert (alignment is not None) == read
    assert all(len(row) == len(found["source_pieces"]) for row in alignment or [])


def test_json_tells_everything(program, run: str) -> None:
    keys = [*BEAM, "search.n_best=2", "format=json", "guard=none"]
    done = program("text", run, *keys, "der Hund, é", "")
    assert done.status == 0, done.err
    first, second = map(json.loads, done.out.splitlines())
    assert first["source"] == "der Hund, é"
    assert second["translations"][0]["text"] == ""
    for one in first["translations"]:
        assert one["log_prob"] == pytest.approx(sum(one["piece_log_probs"]), abs=1e-4)
        assert len(one["piece_log_probs"]) == len(one["pieces"]) + 1 == len(one["alignment"])
        for row in one["alignment"]:
            assert len(row) == len(first["source_pieces"])
            assert sum(row) == pytest.approx(1, abs=1e-2)


def test_minimum_bayes_risk_writes_one_line_a_line(program, run: str) -> None:
    keys = [*SAMPLE, "search.n_best=5", "mbr=chrf"]
    done = program("text", run, *keys, "der Hund", "die Katze")
    assert done.status == 0, done.err
    assert done.out.count("\n") == 2
    assert program("text", run, *keys, "die Katze").out == done.out.splitlines(True)[1]
    listed = program("text", run, *keys, "scores=true", "der Hund").out.splitlines()
    scores = [float(line.split("\t")[1]) for line in listed]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert listed[0].split("\t")[2] == done.out.splitlines()[0]


def test_an_ensemble_of_a_run_with_itself_is_the_run(program, run: str, trained: Path) -> None:
    shutil.copytree(trained / "bundle", "again")
    alone = program("text", run, "scores=true", "der Hund", "ein Haus")
    done = program("text", run, "ensemble=again", "scores=true", "der Hund", "ein Haus")
    assert done.status == 0, done.err
    assert done.out == alone.out
    Path("s").write_text("der Hund\n", encoding="utf-8")
    Path("r").write_text("the dog\n", encoding="utf-8")
    files = ["input=s", "reference=r"]
    done = program("evaluate", run, "ensemble=again,again", *files, "output=scores")
    assert done.status == 0, done.err
    decoding = json.loads(Path("scores", "s.json").read_text("utf-8"))["decoding"]
    assert (decoding["ensemble"], decoding["mbr"]) == ("again,again", None)
    assert program("score", run, "ensemble=again", *files).out == program("score", run, *files).out


def test_scores_of_pairs_and_of_pieces_add_up(program, run: str) -> None:
    Path("s").write_text("der Hund\n\nein Haus\n", encoding="utf-8")
    Path("r").write_text("the dog\n\na house\n", encoding="utf-8")
    done = program("score", run, "input=s", "reference=r", "tokens=true")
    assert done.status == 0, done.err
    assert "3 pairs" in done.err
    assert done.out.count("\n") == 3
    for row in done.out.splitlines():
        log_prob, count, perplexity, pieces, each = row.split("\t")
        assert len(pieces.split()) == len(each.split()) == int(count)
        assert pieces.split()[-1] == "</s>"
        assert sum(map(float, each.split())) == pytest.approx(float(log_prob), abs=1e-4)
        expected = math.exp(-float(log_prob) / int(count))
        assert float(perplexity) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prefix=a", "prefixes=b", "x"], "both prefix= and prefixes= are given"),
        (["ensemble=nowhere", "x"], "nowhere"),
        (["mbr=bluu", "x"], "mbr = 'bluu': must be 'chrf' or 'bleu'"),
        (["mbr=chrf", "x"], "mbr = chrf chooses among several translations: set search.n_best"),
        (["workers=2", "interactive=true", "x"], "workers = 2: interactive=true translates one"),
        (["search=diverse", "search.groups=4", "x"], "is not a multiple of search.groups = 4"),
        (["search=beam", "search.n_best=10", "x"], "n_best = 10 is more than the beam size"),
        (["workers=100000", "x"], "workers = 100000: this process has"),
        (["constraints=-"], "input=- and constraints=-: only one can be standard input"),
        (["search=greedy", "constraints=two", "x"], "search.kind = greedy: constraints= needs"),
        (["search@guard.again=diverse", "constraints=two", "x"], "guard.again.kind = diverse"),
        (["constraints=two", "x"], "two has 2 lines, but the input has 1: line n is for line n"),
        (["constraints=two", "prefixes=one", "x", "y"], "error: one has no line 2"),
        (["search=sample", "search.temperature=1e39", "x"], "must be less than or equal to 1000"),
        (["search.length_penalty=gnnt", "x"], "must be 'none', 'average' or 'gnmt'"),
        (
            ["search=beam", "search.rules.min_lenth=3", "x"],
            "search.rules.min_lenth is not a key; did you mean search.rules.min_length?",
        ),
    ],
)
def test_slips_are_told(program, run: str, arguments, line) -> None:
    Path("one").write_text("\n", encoding="utf-8")
    Path("two").write_text("the\ndog\n", encoding="utf-8")
    done = program("text", run, *arguments)
    assert done.status in (1, 2)
    assert done.out == ""
    assert line in done.err
    assert done.err.count("\n") == 1


def test_prefixes_may_come_through_a_pipe(program, run: str) -> None:
    done = program("text", run, *BEAM, "prefixes=-", "ein Hund", "x", stdin=b"a dog\n\n")
    assert done.status == 0, done.err
    assert done.out.startswith("a dog")


@pytest.mark.parametrize("command", ["text", "evaluate", "calibrate"])
def test_the_search_of_a_run_is_that_of_its_bundle(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """For confidence was learned for this one, and the file beside it may have been edited."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path / "run")
    file = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(file.read_text("utf-8"))
    stored = config["search"]["max_length_offset"]
    config["search"]["max_length_offset"] = stored + 1
    file.write_text(yaml.safe_dump(config), "utf-8")
    nodes = COMMANDS[command].options.stored_nodes("run")
    assert nodes["search"]["max_length_offset"] == stored
