"""Dev and test sets that share no sentence with the training text.

Translations form a graph: sentences are nodes, pairs are edges. Whoever splits by one side's
sentences puts translations of one sentence on both sides of the border; whole connected components
cannot leak.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np
from jaxtyping import UInt64
from pydantic import Field, NonNegativeInt, PositiveInt

from translate.config import Node
from translate.data.pair import Pair
from translate.data.pair_table import CHUNK, PairTable, Places, digests
from translate.data.text import fold, sameness
from translate.errors import UserError
from translate.wording import counted

Groups = list[str | int]
NEARLY_ALL = 0.9  # of the pairs in one group: no smaller number makes good splits of the rest


class HoldOut(Node):
    """The node `data.hold_out`: splits to take out of the training text where there are no files.

    At least half of the pairs must remain for training.
    """

    dev: PositiveInt | Groups = Field(
        description="a number of source sentences, each with all its translations, no sentence of "
        "which stays in training on either side; or a list of groups (books), taken whole: dev "
        "and test may then share sentences"
    )
    test: NonNegativeInt | Groups = Field(description="likewise; 0 for no test split")

    def contradictions(self) -> Iterator[str]:
        if isinstance(self.dev, list) and isinstance(self.test, list):
            for group in sorted(set(map(str, self.dev)) & set(map(str, self.test))):
                yield (
                    f"data.hold_out: dev and test both name the group {group}: give it to only one"
                )


def groups_of(wanted: Mapping[str, int | Groups]) -> set[str]:
    """The names of all groups that are wanted."""
    return {str(name) for choice in wanted.values() if isinstance(choice, list) for name in choice}


def take_groups(
    pairs: PairTable, wanted: Mapping[str, int | Groups]
) -> tuple[PairTable, dict[str, PairTable]]:
    """Take the splits that are `wanted` as groups: what is left, and each one's pairs.

    Groups are whole, whatever sentences they share with each other and the rest.
    """
    taken: dict[str, PairTable] = {}
    for name, choice in wanted.items():
        if isinstance(choice, list):
            pairs, taken[name] = _take_split(pairs, list(map(str, choice)), name)
    return pairs, taken


def take_components(
    pairs: PairTable, wanted: Mapping[str, int | Groups], seed: int
) -> tuple[PairTable, dict[str, PairTable]]:
    """Take the splits that are `wanted` by number: what is left, and each one's pairs.

    Each gets exactly so many items, in whole connected components of the graph of pairs; 0 is no
    split. Components are drawn in the order of a hash of the seed and their smallest sentence, so
    that neither the order of the file nor the direction of translation matters to that order.
    """
    counts = {name: n for name, n in wanted.items() if isinstance(n, int) and n > 0}
    if not counts:
        return pairs, {}
    groups = _Groups(components(pairs))
    items = groups.distinct(digests(pair.source for pair in pairs))
    queue: Iterator[int] = iter(np.argsort(_lots(pairs, groups, seed), kind="stable"))
    split_of: dict[int, str] = {}
    for name, missing in counts.items():
        skipped: list[int] = []
        while missing and (group := next(queue, None)) is not None:
            if items[group] > missing:
                skipped.append(group)  # too large for what is missing: the next split may have room
                continue
            missing -= int(items[group])
            split_of.update(dict.fromkeys(groups.members(group).tolist(), name))
        if missing or 2 * len(split_of) > len(pairs):
            total = int(items.sum())
            fewer = {
                split: max(1, min(count, counts[name] // 2, total // 20))
                for split, count in counts.items()
            }
            largest = groups.sizes.max() if split_of else len(pairs)
            raise UserError(
                f"data.hold_out.{name} = {counted(counts[name], 'item')} cannot be held out: half "
                "of the pairs must be left to train on, and this text has "
                f"{counted(total, 'source sentence')} in {counted(len(groups), 'group')} of shared "
                f"translations; {_remedy(counts, fewer, len(pairs), largest)}"
            )
        queue = chain(skipped, queue)
    taken = {
        name: pairs.at(np.array([i for i in sorted(split_of) if split_of[i] == name]))
        for name in counts
    }
    left = np.ones(len(pairs), dtype=bool)
    left[list(split_of)] = False
    return pairs.at(np.flatnonzero(left)), taken


def _remedy(counts: Mapping[str, int], fewer: Mapping[str, int], pairs: int, largest: int) -> str:
    """Smaller numbers to hold out where they may fit, else what helps at any size."""
    fit = fewer != counts and 2 * sum(fewer.values()) <= pairs
    if fit and largest < NEARLY_ALL * pairs:
        return f"try {' '.join(f'data.hold_out.{split}={n}' for split, n in fewer.items())}"
    return "give your own dev and test files (data.dev, data.test)"


def components(pairs: Iterable[Pair]) -> Places:
    """For each pair the number of its connected component, counted from 0.

    Sentences that `sameness` makes the same are one node, on whichever side they stand. Each
    round hangs the root of a pair's one side under that of its other, the larger under the smaller,
    and then every node under its root, until both sides of all pairs have one root (Shiloach and
    Vishkin 1982): a few rounds over arrays, without an object for each sentence.
    """
    sides = [
        digests(sameness(text) for text in side)
        for side in ((pair.source for pair in pairs), (pair.target for pair in pairs))
    ]
    nodes, ends = np.unique(np.concatenate(sides), return_inverse=True)
    source, target = ends.astype(np.int32).reshape(2, -1)
    root = np.arange(len(nodes), dtype=np.int32)
    while not np.array_equal(one := root[source], other := root[target]):
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(root, above := root[root]):
            root = above
    return np.unique(one, return_inverse=True)[1].astype(np.int32)


class _Groups:
    """Which pairs belong to each component."""

    def __init__(self, component: Places) -> None:
        self.of_pair = component
        self._order = np.argsort(component, kind="stable").astype(np.int32)
        self._first = np.append(0, np.bincount(component).cumsum())

    def __len__(self) -> int:
        return len(self._first) - 1

    def members(self, group: int) -> Places:
        return self._order[self._first[group] : self._first[group + 1]]

    def distinct(self, sentences: UInt64[np.ndarray, "pairs"]) -> Places:
        """How many different sentences the pairs of each component have, by their digests."""
        order = np.lexsort((sentences, self.of_pair))
        group, sentence = self.of_pair[order], sentences[order]
        new = np.append(True, (np.diff(group) != 0) | (sentence[1:] != sentence[:-1]))
        return np.bincount(group[new])

    @property
    def sizes(self) -> Places:
        return np.diff(self._first)


def _lots(pairs: PairTable, groups: _Groups, seed: int) -> UInt64[np.ndarray, "groups"]:
    """The number by which each component is drawn, from its smallest sentence."""

    def lot(members: Iterable[Pair]) -> int:
        # folded alone: text that is not composed is drawn as it was before components composed it
        smallest = min(fold(text) for pair in members for text in (pair.source, pair.target))
        return int.from_bytes(hashlib.sha256(f"{seed} {smallest}".encode()).digest()[:8])

    lots, alone = np.zeros(len(groups), dtype=np.uint64), groups.sizes == 1
    for group, pair in zip(groups.of_pair, pairs, strict=True):  # most pairs: read in order
        if alone[group]:
            lots[group] = lot([pair])
    for group in np.flatnonzero(~alone):
        members = groups.members(int(group))
        # one of short answers may hold most of the pairs: it is read by chunks
        lots[group] = lot(
            pairs.at(members) if len(members) > CHUNK else map(pairs.__getitem__, members)
        )
    return lots


def _take_split(pairs: PairTable, groups: list[str], split: str) -> tuple[PairTable, PairTable]:
    known, chosen = set(), np.zeros(len(pairs), dtype=bool)
    for i, pair in enumerate(pairs):
        known.add(pair.group)
        chosen[i] = pair.group in groups
    if missing := [group for group in groups if group not in known]:
        there = ", ".join(sorted(known - {""})) or "none"
        raise UserError(
            f"data.hold_out.{split}: this corpus has no group {missing[0]}; its groups are {there}"
        )
    return pairs.at(np.flatnonzero(~chosen)), pairs.at(np.flatnonzero(chosen))
