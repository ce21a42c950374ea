"""Finds the model families: each module of this package that defines a `Seq2Seq` is one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from difflib import get_close_matches
from typing import Any

import translate.models
from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq


def families() -> dict[str, type[Seq2Seq]]:
    """Family name (its module's name) → class."""
    found = {}
    for info in pkgutil.iter_modules(translate.models.__path__):
        module = importlib.import_module(f"translate.models.{info.name}")
        for _, member in inspect.getmembers(module, inspect.isclass):
            defined_here = member.__module__ == module.__name__
            if defined_here and issubclass(member, Seq2Seq) and not inspect.isabstract(member):
                found[info.name] = member
    return found


def build(
    family: str, *, source_vocab_size: int, target_vocab_size: int, **options: Any
) -> Seq2Seq:
    """A new model of a family; `options` are its constructor's keywords.

    Raises:
        UserError: the family does not exist, or its options contradict each other.
    """
    known = families()
    if family not in known:
        near = get_close_matches(family, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(sorted(known))}"
        raise UserError(f"unknown model family {family!r} (model.family): {hint}")
    sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
    problems = known[family].problems({**options, **sizes})
    if problems:
        raise UserError("; ".join(problems))
    return known[family](**sizes, **options)
