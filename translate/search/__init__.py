"""Search: from a model's next-token probabilities to whole translations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from translate import config
from translate.compose import filled
from translate.errors import UserError
from translate.search.beam import BeamConfig, BeamSearch
from translate.search.constraints import Constraint, RulesConfig
from translate.search.diverse import DiverseBeamSearch, DiverseConfig
from translate.search.hypothesis import Hypothesis, Search, SearchConfig
from translate.search.sampling import GreedyConfig, GreedySearch, SampleConfig, SampleSearch

log = logging.getLogger(__name__)

__all__ = [
    "KINDS",
    "AnySearchConfig",
    "BeamConfig",
    "BeamSearch",
    "Constraint",
    "DiverseBeamSearch",
    "DiverseConfig",
    "GreedyConfig",
    "GreedySearch",
    "Hypothesis",
    "RulesConfig",
    "SampleConfig",
    "SampleSearch",
    "Search",
    "SearchConfig",
    "build",
    "chosen",
    "problems",
    "read",
    "within_reason",
]

KINDS: Mapping[str, Any] = {
    "greedy": GreedySearch,
    "beam": BeamSearch,
    "diverse": DiverseBeamSearch,
    "sample": SampleSearch,
}
"""`kind` of a search → its class, which is built from a node of its `Config`."""

STORED = {
    "max_length_ratio": 16, "max_length_offset": 512, "beam_size": 64, "n_best": 64, "groups": 64,
}  # fmt: skip
"""The most of each key that a bundle may ask for; up to `hypothesis.MOST` can be typed."""

AnySearchConfig = Annotated[
    GreedyConfig | BeamConfig | DiverseConfig | SampleConfig, Field(discriminator="kind")
]


def build(search: Mapping[str, Any] | SearchConfig) -> Search:
    """Build a search from its node, or from the keys of conf/search.

    Raises:
        UserError: no such kind, or a key is unknown, missing or out of range.
    """
    node = search if isinstance(search, SearchConfig) else read(search)
    made: Search = KINDS[node.kind](node)
    return made


def chosen(search: object, stored: Mapping[str, Any]) -> Search:
    """Return the search that was chosen: a search, or what to change in the run's own."""
    if isinstance(search, Search):
        return search
    if isinstance(search, SearchConfig) or search is None:
        return build(stored if search is None else search)
    named = isinstance(search, Mapping) and all(isinstance(key, str) for key in search)
    if isinstance(search, str) or (isinstance(search, Mapping) and named):
        return build(filled("search", search, stored))
    raise UserError(
        f"search = {search!r}: give a search, the name of an option of conf/search such as "
        "'greedy', or keys of it such as {'beam_size': 8}"
    )


def within_reason(search: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a search that a bundle stores, which may be a stranger's, at no more than `STORED`.

    A warning tells what was lowered; whoever types the same number gets it.
    """
    lowered = {key: most for key, most in STORED.items() if search.get(key, 0) > most}
    for key, most in lowered.items():
        log.warning(
            "%s: search.%s = %s is lowered to %d, the most that a bundle may ask for: type "
            "search.%s= for more", where, key, search[key], most, key,
        )  # fmt: skip
    return {**search, **lowered}


def problems(search: Mapping[str, Any], where: str = "search") -> list[str]:
    """List every problem of a node `search` that stands at the place `where`."""
    nodes = {kind: searches.Config for kind, searches in KINDS.items()}
    return config.chosen(where, search, nodes)


def read(search: Mapping[str, Any], where: str = "search") -> SearchConfig:
    """Read the node `search` that stands at the place `where`; a UserError lists its problems."""
    config.check(problems(search, where))
    node: SearchConfig = KINDS[search["kind"]].Config.model_validate(dict(search))
    return node
