"""Search: from a model's next-token probabilities to whole translations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from translate.config import check, chosen
from translate.search.beam import BeamSearch
from translate.search.constraints import Constraint
from translate.search.diverse import DiverseBeamSearch
from translate.search.greedy import GreedySearch
from translate.search.hypothesis import Hypothesis, Search
from translate.search.rules import Rules
from translate.search.sample import SampleSearch

__all__ = [
    "KINDS",
    "BeamSearch",
    "Constraint",
    "DiverseBeamSearch",
    "GreedySearch",
    "Hypothesis",
    "Rules",
    "SampleSearch",
    "Search",
    "build",
]

KINDS: dict[str, Callable[..., Search]] = {
    "greedy": GreedySearch,
    "beam": BeamSearch,
    "diverse": DiverseBeamSearch,
    "sample": SampleSearch,
}


def build(kind: str, **options: Any) -> Search:
    """A search by its name; `options` are its constructor's keywords (conf/search lists them).

    `rules` is a mapping of keys of conf/search/base.yaml.

    Raises:
        UserError: no such kind, or an option is unknown, missing or out of range.
    """
    check(chosen("search", {"kind": kind, **options}, KINDS))
    if "rules" in options:
        options["rules"] = Rules(**options["rules"])
    return KINDS[kind](**options)
