"""Dev and test sets that share no sentence with the training text.

Translations form a graph: sentences are nodes, pairs are edges. Whoever splits by one side's
sentences puts translations of one sentence on both sides of the border; whole connected components
cannot leak.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from translate.data.pair import Pair
from translate.data.text import normalise
from translate.errors import UserError

Groups = list[str | int]


class HoldOut(BaseModel):
    """The node `data.hold_out`: how many items to hold out, or which groups (books) by name."""

    model_config = ConfigDict(extra="forbid")
    dev: PositiveInt | Groups
    test: NonNegativeInt | Groups


def hold_out(
    pairs: Sequence[Pair], wanted: Mapping[str, int | Groups], seed: int
) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Take the wanted splits out of `pairs`: what is left, and each split's pairs."""
    taken: dict[str, list[Pair]] = {}
    by_group = {name: choice for name, choice in wanted.items() if isinstance(choice, list)}
    by_count = {
        name: choice for name, choice in wanted.items() if isinstance(choice, int) and choice > 0
    }
    left: Sequence[Pair] = pairs
    for name, groups in by_group.items():
        left, taken[name] = _take_groups(left, list(map(str, groups)), name)
    if by_count:
        left, drawn = take_components(left, by_count, seed)
        taken |= drawn
    return list(left), taken


def take_components(
    pairs: Sequence[Pair], wanted: Mapping[str, int], seed: int
) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Take exactly so many items a split, in whole connected components of the graph of pairs.

    Components are drawn in the order of a hash of the seed and their first sentence, so that
    neither the order of the file nor the direction of translation matters to that order.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for index, root in enumerate(components(pairs)):
        members[root].append(index)
    drawn = sorted(
        members.items(), key=lambda item: hashlib.sha256(f"{seed} {item[0]}".encode()).digest()
    )
    queue: Iterator[list[int]] = (indices for _, indices in drawn)
    split_of: dict[int, str] = {}
    for name, count in wanted.items():
        missing = count
        skipped: list[list[int]] = []
        while missing and (indices := next(queue, None)) is not None:
            size = len({pairs[i].source for i in indices})
            if size > missing:
                skipped.append(
                    indices
                )  # too large for what is still missing: the next split may have room
                continue
            missing -= size
            split_of.update(dict.fromkeys(indices, name))
        if missing or 2 * len(split_of) > len(pairs):
            total = len({pair.source for pair in pairs})
            raise UserError(
                f"data.hold_out.{name} = {count} items cannot be held out of {total} source "
                f"sentences in {len(members)} groups of shared translations with half of the pairs "
                "left to train on; lower data.hold_out.dev and data.hold_out.test"
            )
        queue = _chain(skipped, queue)
    taken = {name: [pairs[i] for i in sorted(split_of) if split_of[i] == name] for name in wanted}
    return [pair for i, pair in enumerate(pairs) if i not in split_of], taken


def components(pairs: Iterable[Pair]) -> list[str]:
    """For each pair the smallest sentence of its connected component, by union-find.

    Sentences that differ in case and spaces only are one node, on whichever side they stand.
    """
    parent: dict[str, str] = {}

    def find(node: str) -> str:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = node = parent[above]  # path halving
        return node

    nodes = []
    for pair in pairs:
        nodes.append(normalise(pair.source))
        first, second = sorted((find(nodes[-1]), find(normalise(pair.target))))
        parent[second] = first  # the root is always the smallest sentence
    return [find(node) for node in nodes]


def _take_groups(
    pairs: Sequence[Pair], groups: list[str], split: str
) -> tuple[list[Pair], list[Pair]]:
    known = {pair.group for pair in pairs}
    if missing := [group for group in groups if group not in known]:
        there = ", ".join(sorted(known - {""})) or "none"
        raise UserError(
            f"data.hold_out.{split}: this corpus has no group {missing[0]}; its groups are {there}"
        )
    taken = [pair for pair in pairs if pair.group in groups]
    return [pair for pair in pairs if pair.group not in groups], taken


def _chain(first: Iterable[list[int]], then: Iterator[list[int]]) -> Iterator[list[int]]:
    yield from first
    yield from then
