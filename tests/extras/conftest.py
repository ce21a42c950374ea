"""Tiny translators for every test of this room."""

from small_translators import (
    joint,
    make_bundle,
    make_model,
    make_translator,
    name,
    options,
    separate,
)

__all__ = ["joint", "make_bundle", "make_model", "make_translator", "name", "options", "separate"]
