"""Finds the model families: each module of this package that defines a `Seq2Seq` is one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

import translate.models
from translate.config import check, misnamed
from translate.models.seq2seq import Seq2Seq


@cache
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


def completed(family: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those that have come since they were written; families may be unknown."""
    known = families().get(family)
    return {**(known.since if known else {}), **options}


def build(
    family: str, *, source_vocab_size: int, target_vocab_size: int, **options: Any
) -> Seq2Seq:
    """A new model of a family; `options` are its constructor's keywords.

    Raises:
        UserError: the family does not exist, or its options contradict each other.
    """
    known = families()
    check(misnamed("model", {"family": family}, known, key="family"))
    sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
    check(known[family].problems({**options, **sizes}))
    return known[family](**sizes, **options)
