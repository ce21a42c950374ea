"""Reproducible choices, with a budget of words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """A seeded source of choices; `room` counts the German words still to be spent.

    Only `random.Random.random` is used: Python promises its sequence for a seed across versions.
    """

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random
        self.room = 0

    def happens(self, probability: float) -> bool:
        """True with a probability."""
        return self.random() < probability

    def spend(self, words: int, probability: float) -> bool:
        """Take an option of some words if there is room: the likelier, the more room there is."""
        surplus = self.room - words
        tries = 1 + min(surplus, 8) / 4
        if surplus < 0 or not self.happens(1 - (1 - probability) ** tries):
            return False
        self.room = surplus
        return True

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self.random() * len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """One of the options, by their weights."""
        point = self.random() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]  # the sum was rounded up
