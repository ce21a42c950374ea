"""Perplexity and what compares across vocabularies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from translate.evaluation.likelihood import Likelihood, likelihood, perplexity
from translate.inference.forcing import TooLongError
from translate.inference.translation import Score


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


def test_longer_pieces_hide_in_perplexity_but_not_in_bits_a_character() -> None:
    small, large = (likelihood(Coin(n), ["x"], [["1234567"]]) for n in (1, 2))
    assert small.perplexity == large.perplexity
    assert large.bits_per_character == pytest.approx(small.bits_per_character / 2)


def test_what_the_vocabulary_leaves_out_is_counted() -> None:
    class Illiterate(Coin):
        def score(self, sources: Sequence[str], targets: Sequence[str], /) -> list[Score]:
            return [Score(-1.0, 2, (), unknown=1) for _ in targets]

    found = likelihood(Illiterate(1), ["x", "y"], [["abc"], ["defg"]])
    assert found.unknown == found.as_dict()["unknown"] == 2


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
    with caplog.at_level("WARNING", logger="translate"):
        found = likelihood(ShortSighted(1), ["x", "y", "z"], [["abc"], ["too long"], ["defg"]])
    others = likelihood(Coin(1), ["x", "z"], [["abc"], ["defg"]])
    assert others is not None
    assert found == replace(others, left_out=1)
    assert "leaves out 1 of 3 pairs, which are longer than the model reads" in caplog.text
    assert caplog.text.endswith("model reads: line 2\n")


def test_there_is_no_likelihood_of_nothing() -> None:
    assert likelihood(ShortSighted(1), ["x"], [["too long"]]) is None
