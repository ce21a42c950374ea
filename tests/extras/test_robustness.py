"""Scores of sentences that are changed as people's text differs."""

from __future__ import annotations

from typing import get_args

import pytest

from translate.cli.evaluate import Modifier
from translate.data.modifiers import ALONE
from translate.extras.robustness import modified_scores

SOURCES = [
    "Der Hund schläft heute nicht.",
    "hier ist es doch sehr schön",
    "Wo ist die Katze denn nun?",
]
REFERENCES = [
    ["The dog does not sleep today.", "The dog is awake all day today."],
    ["but it is very nice here"],
    ["So where is the cat now?"],
]


def test_sentences_are_scored_beside_themselves_as_they_were(caplog) -> None:
    first = [of[0] for of in REFERENCES]
    asked: list[str] = []

    def translate(sources: list[str]) -> list[str]:
        """Know the marks and the plain text, but no capitals."""
        asked.extend(sources)
        known = dict(zip(SOURCES, first, strict=True))
        return [known.get(text, text) for text in sources]

    scores = modified_scores(
        lambda sources: translate(list(sources)), SOURCES, REFERENCES, first,
        names=["upper", "lower", "names"], seed=1, tokenize="13a",
    )  # fmt: skip
    upper, lower = scores
    assert (upper.modifier, upper.items, upper.plain) == ("upper", 3, pytest.approx(100))
    assert upper.modified < 10
    assert asked[:3] == [source.upper() for source in SOURCES]
    assert lower.items == 2, "the second has no capital"
    assert "modifiers=names: it can change none of these sentences" in caplog.text


def test_the_command_takes_every_modifier_of_a_single_pair() -> None:
    assert set(get_args(Modifier)) == set(ALONE)
