"""Perplexity and what compares across vocabularies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from translate.evaluation.likelihood import Likelihood, likelihood, perplexity


@dataclass(frozen=True)
class Pair:
    log_prob: float
    tokens: int


class Coin:
    """Finds every piece as likely as one of four; its pieces are `size` characters long."""

    def __init__(self, size: int) -> None:
        self.size = size

    def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Pair]:
        counts = [math.ceil((len(text) + 1) / self.size) for text in targets]
        return [Pair(-count * math.log(4), count) for count in counts]


def test_the_first_references_are_scored() -> None:
    found = likelihood(Coin(1), ["x", "y"], [["abc", "a much longer one"], ["defg"]])
    assert (found.tokens, found.characters) == (9, 9)
    assert found.perplexity == pytest.approx(4)
    assert found.bits_per_character == pytest.approx(2)


def test_longer_pieces_hide_in_perplexity_but_not_in_bits_a_character() -> None:
    small, large = (likelihood(Coin(n), ["x"], [["1234567"]]) for n in (1, 2))
    assert small.perplexity == large.perplexity
    assert large.bits_per_character == pytest.approx(small.bits_per_character / 2)


def test_an_impossible_text_has_infinite_perplexity() -> None:
    assert perplexity(-1e6, 1) == math.inf
    assert Likelihood(-2.0, 1, 3).as_dict()["perplexity"] == pytest.approx(math.e**2)
