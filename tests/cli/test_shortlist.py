"""translate shortlist, and translating with what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LINES = ["der Hund schläft .", "", "ein Haus"]
GREEDY = ["search=greedy", "guard=none"]


def test_a_shortlist_is_learnt_and_used(program, run: str, home: Path) -> None:
    learned = program(
        "shortlist", run, f"cache={home}/data", "output=a list, =", "frequent=3", "likeliest=2"
    )
    assert (learned.status, learned.out) == (0, ""), learned.err
    assert "a list, =: learned from 300 pairs" in learned.err
    found = program("text", run, "shortlist=a list, =", "format=json", *GREEDY, *LINES)
    assert found.status == 0, found.err
    answers = [json.loads(line)["translations"][0] for line in found.out.splitlines()]
    assert len(answers) == 3
    whole = program("text", run, "format=json", *GREEDY, *LINES).out.splitlines()
    likelier = json.loads(whole[0])["translations"][0]["log_prob"]
    assert answers[0]["log_prob"] > likelier  # among a few candidates


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["shortlist", "output=."], "output=. cannot be written: name a file"),
        (["shortlist", "frequent=0"], "frequent = 0: must be greater than 0"),
        (["text", "shortlist=nowhere", "x"], "shortlist=nowhere cannot be read"),
        (
            ["text", "engine=ctranslate2", "shortlist=nowhere", "x"],
            "shortlist = nowhere: engine=ctranslate2 has no such option",
        ),
    ],
)
def test_what_is_wrong_is_told(program, run: str, arguments, line) -> None:
    command, *others = arguments
    done = program(command, run, *others)
    assert done.status != 0
    assert line in done.err
