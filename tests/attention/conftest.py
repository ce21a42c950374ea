"""Random numbers for the tests of this room."""

from random_numbers import randn

__all__ = ["randn"]
