"""The node `guard`: what it may hold, and the guard it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from translate import schema
from translate.cli.validation import chosen

if TYPE_CHECKING:
    from translate.inference.guard import Guard

Node = Mapping[str, Any]


def guard_problems(node: Node) -> list[str]:
    """Every problem of the node, one line each; none of an empty one, `guard=none`."""
    from translate.inference.guard import Guard
    from translate.search import KINDS

    if not node:
        return []
    options = {key: value for key, value in node.items() if key != "again"}
    found = schema.problems(Guard, options, "guard", supplied=("again", "foreign"))
    again = node["again"]
    if not isinstance(again, dict):
        return [
            *found,
            f"guard.again = {again!r}: must be a search, such as search@guard.again=beam",
        ]
    found += chosen("guard.again", again, KINDS)
    if not found and (banned := again.get("rules", {}).get("banned")):
        found = [f"guard.again.rules.banned = {banned}: both searches keep search.rules.banned"]
    return found


def guard(node: Node, search: Node, languages: tuple[str, str]) -> Guard | None:
    """What watches over translations by `search`, whose second try gives as many; None: nothing."""
    from translate import search as searches
    from translate.inference.guard import Guard

    if not node:
        return None
    options = {**node, "protect": tuple(node["protect"])}
    again, n_best = options.pop("again"), search.get("n_best", 1)
    again |= {key: max(again[key], n_best) for key in ("n_best", "beam_size") if key in again}
    foreign = languages[0] != languages[1]
    return Guard(again=searches.build(**again), foreign=foreign, **options)
