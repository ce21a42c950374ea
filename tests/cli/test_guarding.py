"""What stands around the search: sentences, the guard, confidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TEXT = "der Hund schläft .\n\n  https://a.de/b?c  ein Haus {x} .\n"


def test_items_come_through_and_what_was_done_is_told(program, run: str) -> None:
    done = program("text", run, stdin=TEXT.encode())
    assert done.status == 0, done.err
    _, second, third, end = done.out.split("\n")
    assert (second, end) == ("", "")
    assert third.startswith("  https://a.de/b?c  ")
    assert "{x}" in third
    assert "line 3 was translated again: " in done.err
    assert "lost https://a.de/b?c" in done.err
    assert done.err.splitlines()[-1].startswith("of 3 lines ")
    assert program("text", run, "guard=none", stdin=b"der Hund schl\xc3\xa4ft .").err == ""


def test_json_tells_flags(program, run: str) -> None:
    done = program("text", run, "format=json", "ein Haus {x}")
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)["translations"]
    assert "lost {x}" in found["mended"]
    assert "{x}" in found["text"]
    assert "confidence" not in found
    assert "lost {x}" not in json.dumps(found["flags"])


def test_sentences_are_translated_by_themselves_unless_asked_otherwise(program, run: str) -> None:
    keys, two = [run, "guard=none", "search=greedy"], ["Der Hund schläft.", "Die Katze schläft."]
    apart = program("text", *keys, *two).out.splitlines()
    assert program("text", *keys, " ".join(two)).out.splitlines() == [" ".join(apart)]
    assert program("text", *keys, "split=none", " ".join(two)).out.splitlines() != [" ".join(apart)]


def test_the_limits_can_be_changed(program, run: str) -> None:
    keys = ["guard.protect=[url]", "guard.again.beam_size=2", "search=greedy"]
    done = program("text", run, *keys, "ein Haus {x}")
    assert done.status == 0, done.err
    assert "lost {x}" not in done.err


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse", "sample"])
def test_the_second_search_can_be_any(program, run: str, kind: str) -> None:
    done = program("text", run, f"search@guard.again={kind}", "search=greedy", "der Hund")
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["guard=strict"], "guard"),
        (["guard.loop_times=1"], "guard.loop_times = 1: must be greater than or equal to 2"),
        (["guard.protect=[urls]"], "guard.protect.0 = 'urls': must be 'url'"),
        (["guard.again.beam_size=0"], "guard.again.beam_size = 0: must be greater than 0"),
        (["guard.again.kind=bean"], "guard.again.kind = 'bean': no such kind; did you mean"),
        (["search@guard.again=greedy", "guard.again.alpha=2"], "guard.again.alpha"),
        (["split=sentence"], "split = 'sentence': must be 'sentences' or 'none'"),
    ],
)
def test_slips_are_told(program, run: str, arguments, line) -> None:
    done = program("text", run, *arguments, "x")
    assert done.status == 2
    assert line in done.err
    assert done.out == ""


def test_confidence_is_learnt_once_and_told_from_then_on(
    program, run: str, trained: Path, home: Path, monkeypatch
) -> None:
    monkeypatch.setattr("translate.evaluation.calibration.LEAST", 2)  # of 8 sentences
    assert program("evaluate", run, "data.split=dev", f"cache={home}/data", "output=e").status == 0
    lines = Path("e", "dev.sentences.jsonl").read_text("utf-8").splitlines()
    middle = sorted(json.loads(line)["chrf"] for line in lines)[4]
    refused = program("calibrate", run, f"cache={home}/data", "good=99")
    assert refused.status == 1
    assert "0 of 8 translations are good" in refused.err
    done = program("calibrate", run, f"cache={home}/data", f"good={middle}")
    assert done.status == 0, done.err
    assert "learnt from 8 sentences of dev; good is chrF" in done.out
    assert "of 8 sentences of test" in done.out
    try:
        told = program("text", run, "format=json", "der Hund").out
        assert 0 <= json.loads(told)["translations"][0]["confidence"] <= 1
        for other in (["search.beam_size=3"], ["search.n_best=2", "mbr=chrf"]):
            told = program("text", run, *other, "format=json", "der Hund").out
            assert "confidence" not in json.loads(told)["translations"][0]
    finally:
        (trained / "confidence.json").unlink()


def test_a_second_search_that_cannot_make_phrases_is_told_first(program, run, tmp_path) -> None:
    phrases = tmp_path / "phrases"
    phrases.write_text("red house\n", encoding="utf-8")
    done = program("text", run, "search@guard.again=diverse", f"constraints={phrases}", "x")
    assert done.status == 2
    assert "guard.again.kind = diverse" in done.err
