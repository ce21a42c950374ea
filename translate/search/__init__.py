"""Search: from a model's next-token probabilities to whole translations."""

from __future__ import annotations

from typing import Any

from translate.errors import UserError
from translate.schema import check, nearest, problems
from translate.search.beam import BeamSearch
from translate.search.greedy import GreedySearch
from translate.search.hypothesis import Hypothesis, Search

__all__ = ["KINDS", "BeamSearch", "GreedySearch", "Hypothesis", "Search", "build"]

KINDS: dict[str, type[GreedySearch] | type[BeamSearch]] = {
    "greedy": GreedySearch,
    "beam": BeamSearch,
}


def build(kind: str, **options: Any) -> Search:
    """A search by its name; `options` are its constructor's keywords (conf/search lists them).

    Raises:
        UserError: no such kind, or an option is unknown, missing or out of range.
    """
    if kind not in KINDS:
        raise UserError(f"search.kind = {kind!r} does not exist{nearest(kind, KINDS)}")
    check(problems(KINDS[kind], options, "search"))
    return KINDS[kind](**options)
