"""The node `guard`: what it may hold, and the guard it describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from translate import schema
from translate.cli import stored
from translate.cli.validation import chosen

if TYPE_CHECKING:
    from translate.inference.guard import Guard
    from translate.search.shortlist import Shortlist

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


def guard(
    node: Node, search: Node, languages: tuple[str, str], shortlist: Shortlist | None
) -> Guard | None:
    """What watches over translations by `search`; None: nothing.

    Its second try gives as many translations, keeps the rules of both searches and has the same
    shortlist.
    """
    from translate.inference.guard import Guard

    if not node:
        return None
    options = {**node, "protect": tuple(node["protect"])}
    again, n_best = dict(options.pop("again")), search.get("n_best", 1)
    again |= {key: max(again[key], n_best) for key in ("n_best", "beam_size") if key in again}
    if "groups" in again:
        again["beam_size"] = math.ceil(again["beam_size"] / again["groups"]) * again["groups"]
    again["rules"] = _both(again["rules"], search.get("rules", {}))
    foreign = languages[0] != languages[1]
    return Guard(again=stored.built(again, shortlist), foreign=foreign, **options)


def _both(rules: Node, others: Node) -> Node:
    """Rules that keep those of two searches; what is banned goes with each sentence."""
    stricter: dict[str, Callable[[Any, Any], Any]] = {
        "min_length": max, "repetition_penalty": max, "no_repeat_ngram_size": _smaller,
    }  # fmt: skip
    return {**rules, **{key: of(rules[key], others.get(key, 0)) for key, of in stricter.items()}}


def _smaller(size: int, other: int) -> int:
    """Of two n-gram sizes, of which 0 allows everything."""
    return min(size or other, other or size)
