"""Tiny translators and random numbers for the tests of this room."""

from random_numbers import randn
from small_translators import (
    joint,
    make_bundle,
    make_model,
    make_translator,
    name,
    options,
    separate,
)

__all__ = [
    "joint", "make_bundle", "make_model", "make_translator", "name", "options", "randn", "separate",
]  # fmt: skip
