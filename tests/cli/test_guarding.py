"""What stands around the search: sentences, the guard, confidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from translate.cli.options import TranslatingOptions
from translate.compose import config_dir
from translate.extras.shortlist_search import Shortlist, ShortlistSearch
from translate.inference import translator
from translate.inference.guard import Guard, GuardConfig
from translate.search import Search, read
from translate.search.constraints import NO_RULES

NATIVE = {"engine": "native"}
TEXT = "der Hund schläft .\n\n  https://a.de/b?c  ein Haus {x} .\n"


def test_items_come_through_and_what_was_done_is_told(program, run: str) -> None:
    done = program("text", run, stdin=TEXT.encode())
    assert done.status == 0, done.err
    _, second, third, end = done.out.split("\n")
    assert (second, end) == ("", "")
    assert third.startswith("  https://a.de/b?c ")
    assert "{x}" in third
    assert "lost" not in done.err
    assert done.err.splitlines()[-1].startswith("of 3 lines, ")
    assert program("text", run, "guard=none", stdin=b"der Hund schl\xc3\xa4ft .").err == ""


def test_a_hint_is_given_where_it_can_be_followed(
    program, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "format=json has them all" in program("text", run, stdin=TEXT.encode()).err
    native = translator.load
    monkeypatch.setattr(TranslatingOptions, "_beyond_the_engine", lambda options: [])
    monkeypatch.setattr(translator, "load", lambda run, **options: native(run, **options | NATIVE))
    done = program("text", run, "engine=ctranslate2", stdin=TEXT.encode())
    assert done.err.splitlines()[-1].startswith("of 3 lines, ")
    assert "format=json" not in done.err


def test_json_tells_flags(program, run: str) -> None:
    done = program("text", run, "format=json", "ein Haus {x}")
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)["translations"]
    assert "{x}" in found["text"]
    assert "confidence" not in found
    assert "lost {x}" not in json.dumps(found["flags"])


def test_json_has_weights_of_four_digits(program, run: str) -> None:
    (found,) = json.loads(program("text", run, "format=json", "ein Haus").out)["translations"]
    weights = [weight for row in found["alignment"] for weight in row]
    assert weights
    assert max(len(str(weight)) for weight in weights) <= len("0.1234")


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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["guard=strict"], "guard"),
        (["guard.protect=[urls]"], "guard.protect.0 = 'urls': must be 'url'"),
        (["guard.again.n_best=9"], "guard.again.n_best = 9 is more than the beam size"),
        (["guard.again.kind=bean"], "guard.again.kind = 'bean': no such kind; did you mean"),
        (["search@guard.again=greedy", "guard.again.alpha=2"], "guard.again.alpha"),
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
    monkeypatch.setattr("translate.extras.calibration.LEAST", 2)  # of 8 sentences
    assert program("evaluate", run, "data.split=dev", f"cache={home}/data", "output=e").status == 0
    lines = Path("e", "dev.sentences.jsonl").read_text("utf-8").splitlines()
    middle = sorted(json.loads(line)["chrf"] for line in lines)[4]
    refused = program("calibrate", run, f"cache={home}/data", "good=99")
    assert refused.status == 1
    assert "0 of 8 translations are good" in refused.err
    done = program("calibrate", run, f"cache={home}/data", f"good={middle}")
    assert done.status == 0, done.err
    assert "learned from 8 dev sentences; good means chrF" in done.out
    assert "of 8 test sentences" in done.out
    try:
        told = program("text", run, "guard=none", "format=json", "der Hund").out
        assert 0 <= json.loads(told)["translations"][0]["confidence"] <= 1
        for other in (["search.beam_size=3"], ["search.n_best=2", "mbr=chrf"]):
            told = program("text", run, *other, "format=json", "der Hund").out
            assert "confidence" not in json.loads(told)["translations"][0]
        stored = json.loads((trained / "confidence.json").read_text("utf-8"))
        assert 0 < stored["unsure"] < 1
        unsure = stored | {
            "slope": 0, "intercept": -3, "judged": {"expected": 0.9}, "unsure": 0.1
        }  # fmt: skip
        (trained / "confidence.json").write_text(json.dumps(unsure), "utf-8")
        lines = [f"der Hund {word}" for word in "abcdefghij"]
        assert (
            "is far from what the model was trained on: 5% of its"
            in program("text", run, "guard=none", *lines).err
        )
        assert (
            "line 1 may be wrong: unfinished, unsure"
            in program("text", run, "guard.loop_times=99", "der Hund").err
        )
        assert "is far from" not in program("text", run, "guard=none", *lines[1:]).err
    finally:
        (trained / "confidence.json").unlink()


LONG = "Ein Mann in einem blauen Hemd steht auf einer Leiter ."


def test_the_second_search_keeps_the_length_limit_of_the_first(program, run: str) -> None:
    """A translation that meets its limit is unfinished, and so is searched again."""
    keys = ["search.max_length_ratio=0.0", "search.max_length_offset=4", "format=json"]
    done = program("text", run, *keys, "guard.short_ratio=0", LONG)
    assert "unfinished" in done.err
    assert len(json.loads(done.out)["translations"][0]["pieces"]) <= 4


FIRST = {
    "kind": "beam", "beam_size": 9, "n_best": 1, "length_penalty": "gnmt", "alpha": 1.0,
    "coverage_penalty": 0.0, "max_length_ratio": 1.0, "max_length_offset": 5,
}  # fmt: skip


def second(search: dict, limiting: Callable[[Search], Search] | None = None, **rules) -> Search:
    """The second search beside `search`, in three groups of two and with these rules."""
    again = {
        "kind": "diverse", "beam_size": 6, "groups": 3, "diversity_strength": 0.5, "n_best": 3,
        "length_penalty": "gnmt", "alpha": 1.0, "coverage_penalty": 0.0, "max_length_ratio": 1.0,
        "max_length_offset": 5, "rules": NO_RULES.model_dump() | rules,
    }  # fmt: skip
    node = yaml.safe_load((config_dir() / "guard" / "default.yaml").read_text("utf-8"))
    del node["defaults"]
    node["again"] = again
    first = read({**FIRST, **search})
    return Guard(GuardConfig.model_validate(node), first, foreign=True, limiting=limiting).again


def test_the_second_search_has_the_shortlist_of_the_first() -> None:
    shortlist = Shortlist(torch.tensor([4]), torch.zeros(9, 1, dtype=torch.long))
    again = second({}, shortlist.limiting)
    assert isinstance(again, ShortlistSearch)
    assert again.shortlist is shortlist


@pytest.mark.parametrize(
    ("first", "again", "both"),
    [
        ({"min_length": 3}, {"min_length": 1}, {"min_length": 3}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 1}),
        ({}, {"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
        ({"no_repeat_ngram_size": 4}, {}, {"no_repeat_ngram_size": 4}),
        ({"repetition_penalty": 1.5}, {}, {"repetition_penalty": 1.5}),
    ],
)
def test_the_second_search_keeps_the_rules_of_both(first, again, both) -> None:
    asked = NO_RULES.model_dump() | first
    assert second({"rules": asked}, **again).rules == NO_RULES.model_copy(update=both)
    assert second({}, **again).rules == NO_RULES.model_copy(update=again)
