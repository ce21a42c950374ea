"""The text that a corpus learns from and is judged by: read, cleaned, and kept apart."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64

from translate.data.cleaning import Drops, Tell, clean, drop_overlap, first_of_each
from translate.data.pairs import (
    CHUNK,
    Item,
    Pair,
    PairTable,
    Places,
    Unreadable,
    digests,
    items,
)
from translate.data.plain_text import fold, sameness
from translate.data.progress import progress
from translate.data.sources import MAIN, Groups, Source
from translate.errors import UserError
from translate.names import on_demand
from translate.wording import counted

MOST_HELD_OUT, SHARE_HELD_OUT = 1_000, 0.025  # sentences of a split, by hold_out = auto
QUICK = 5_000  # pairs of each split that the doctor has a look at
QUICK_LOOK = "translate.extras.doctor:quick_look"
SHARED_WITH_DEV = "translate.extras.doctor:shared_with_dev"
log = logging.getLogger(__name__)


# Dev and test sets that share no sentence with the training text. Translations form a graph:
# sentences are nodes, pairs are edges. Whoever splits by one side's sentences puts translations of
# one sentence on both sides of the border; whole connected components cannot leak.


def groups_of(wanted: Mapping[str, int | str | Groups]) -> set[str]:
    """The names of all groups that are wanted."""
    return {str(name) for choice in wanted.values() if isinstance(choice, list) for name in choice}


def take_groups(
    pairs: PairTable, wanted: Mapping[str, int | str | Groups]
) -> tuple[PairTable, dict[str, PairTable]]:
    """Take the splits that are `wanted` as groups; return the rest, and the pairs of each.

    Groups are whole, whatever sentences they share with each other and the rest.
    """
    taken: dict[str, PairTable] = {}
    for name, choice in wanted.items():
        if isinstance(choice, list):
            pairs, taken[name] = _take_split(pairs, list(map(str, choice)), name)
    return pairs, taken


def take_components(
    pairs: PairTable, wanted: Mapping[str, int | str | Groups], seed: int
) -> tuple[PairTable, dict[str, PairTable]]:
    """Take the splits that are `wanted` by number; return the rest, and the pairs of each.

    Each gets exactly so many items, in whole connected components of the graph of pairs; 0 is no
    split. Components are drawn in the order of a hash of the seed and their smallest sentence, so
    that neither the order of the file nor the direction of translation matters to that order.
    """
    if not any(n == "auto" or (isinstance(n, int) and n > 0) for n in wanted.values()):
        return pairs, {}
    groups = _Groups(components(pairs))
    items = groups.distinct(digests(pair.source for pair in pairs))
    counts = _counts(wanted, int(items.sum()))
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
            raise UserError(
                f"data.hold_out.{name} = {counted(counts[name], 'item')} cannot be held out: half "
                "of the pairs must be left to train on, and this text has "
                f"{counted(int(items.sum()), 'source sentence')} in "
                f"{counted(len(groups), 'group')} of shared translations; lower it, or give your "
                "own dev and test files (data.dev, data.test)"
            )
        queue = chain(skipped, queue)
    taken = {
        name: pairs.at(np.array([i for i in sorted(split_of) if split_of[i] == name]))
        for name in counts
    }
    left = np.ones(len(pairs), dtype=bool)
    left[list(split_of)] = False
    return pairs.at(np.flatnonzero(left)), taken


def _counts(wanted: Mapping[str, int | str | Groups], sentences: int) -> dict[str, int]:
    """Return how many sentences each split takes that is wanted by number."""
    few = min(MOST_HELD_OUT, max(1, int(SHARE_HELD_OUT * sentences)))
    counts = {name: few if n == "auto" else n for name, n in wanted.items()}
    if few < MOST_HELD_OUT and "auto" in wanted.values():
        log.info(
            "holding out %s for %s, of %s: data.hold_out.dev=NUMBER takes another number, data.dev "
            "names a file", counted(few, "sentence"),
            " and as many for ".join(name for name, n in wanted.items() if n == "auto"),
            f"{sentences:,}",
        )  # fmt: skip
    return {name: n for name, n in counts.items() if isinstance(n, int) and n > 0}


def components(pairs: Iterable[Pair]) -> Places:
    """Return, for each pair, the number of its connected component, counted from 0.

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
    """The pairs of each component."""

    def __init__(self, component: Places) -> None:
        self.of_pair = component
        self._order = np.argsort(component, kind="stable").astype(np.int32)
        self._first = np.append(0, np.bincount(component).cumsum())

    def __len__(self) -> int:
        return len(self._first) - 1

    def members(self, group: int) -> Places:
        return self._order[self._first[group] : self._first[group + 1]]

    def distinct(self, sentences: UInt64[np.ndarray, "pairs"]) -> Places:
        """Count the different sentences of each component, by their digests."""
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


class Text(NamedTuple):
    """One corpus of the training text, clean: the main one or one of `data.extra`."""

    name: str
    pairs: PairTable
    tag: str | None  # before every source
    dropped: Counter[str]  # pairs, by rule
    held_out: int = 0  # pairs that went from it to dev and test


class Selection(NamedTuple):
    """The training texts, the main one first; the items of dev and test; what is suspicious."""

    texts: list[Text]
    held_out: dict[str, list[Item]]
    suspicious: list[str]


def select(source: Source, cache: Path, scratch: Path, tell: Tell | None = None) -> Selection:
    """Read and clean all text of a corpus; what training keeps stays in files of `scratch`.

    `tell` is called with each training pair that is left out.

    Raises:
        UserError: the text cannot be read or split, or nothing of it is left.
    """
    heads, splits = peek(source.open(cache))
    suspicious = _logged(on_demand(QUICK_LOOK)(heads))
    main, held_out = _clean_and_split(source, splits, scratch, suspicious, tell)
    unseen = [Pair(row.source, text) for rows in held_out.values() for row in rows
              for text in row.references]  # fmt: skip
    texts = [main, *_extra(source, unseen, scratch, suspicious, tell)]
    return Selection(texts, held_out, suspicious)


def peek(
    texts: Mapping[str, Iterable[Pair]],
) -> tuple[dict[str, list[Pair]], dict[str, Iterable[Pair]]]:
    """Return the first pairs of each split, and then all of them."""
    streams = {split: iter(pairs) for split, pairs in texts.items()}
    heads = {split: list(islice(pairs, QUICK)) for split, pairs in streams.items()}
    return heads, {split: chain(heads[split], streams[split]) for split in streams}


def _logged(suspicious: list[str]) -> list[str]:
    for line in suspicious:
        log.warning("%s: run translate doctor with the same settings to see the lines", line)
    return suspicious


def _clean_and_split(
    source: Source,
    texts: Mapping[str, Iterable[Pair]],
    scratch: Path,
    suspicious: list[str],
    tell: Tell | None,
) -> tuple[Text, dict[str, list[Item]]]:
    """The main corpus of training, and the items of dev and test; to `suspicious` test text in dev.

    Splits that come with the source stay as they are, line by line: scores on them are compared
    with others'. Groups are whole, too, except for empty pairs. Splits by number come last, out of
    the text that shares no sentence with these.
    """
    drops = Drops(MAIN, first_line=source.first_line(), tell=tell)
    with progress(f"Reading {source.source}-{source.target} sentences"):
        wanted = {name: choice for name, choice in source.hold_out if name not in texts}
        for name, choice in wanted.items():
            if isinstance(choice, int) and choice:
                log.info(
                    "this corpus has no text for %s: holding %s out of the training text",
                    name, counted(choice, "sentence"),
                )  # fmt: skip
        train = clean(
            texts["train"], source.cleaning, scratch / MAIN, drops, whole=groups_of(wanted)
        )
        fixed = {name: _readable(name, pairs) for name, pairs in texts.items() if name != "train"}
    in_dev = on_demand(SHARED_WITH_DEV)(fixed, allow_one_side=source.allow_overlap)
    suspicious += _logged(in_dev)
    train, groups = take_groups(train, wanted)
    held = list(chain(*fixed.values(), *groups.values()))
    train = _without_overlap(train, held, source, "the training text", drops)
    _check_left("the training text", train, drops.counts)
    train, drawn = take_components(train, wanted, source.seed)
    held_out = {
        name: [Item(p.source, (p.target,), p.alignment, p.group) for p in pairs]
        for name, pairs in fixed.items()
    }
    taken = 0
    for name, pairs in (groups | drawn).items():
        # distinct as items are, even where cleaning leaves duplicates
        distinct, repeated = first_of_each(pairs)
        drops.of_table("duplicate", pairs, distinct, repeated)
        held_out[name] = items(distinct)
        taken += len(distinct)
    for name, rows in held_out.items():
        if not rows:
            raise UserError(
                f"the {name} split has no sentences; check data.{name} and data.hold_out.{name}"
            )
    return Text(MAIN, train, source.tag, drops.counts, taken), held_out


def _readable(split: str, pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs of dev or test without rows that are none, which are counted in the log."""
    rows = list(pairs)
    readable = [pair for pair in rows if not isinstance(pair, Unreadable)]
    if unreadable := len(rows) - len(readable):
        log.warning("left out of %s: %s that cannot be read", split, counted(unreadable, "row"))
    return readable


def _extra(
    source: Source,
    held_out: Sequence[Pair],
    scratch: Path,
    suspicious: list[str],
    tell: Tell | None,
) -> Iterator[Text]:
    """The further training corpora, by the rules of the main one; what is `suspicious` is added.

    They may translate the other way, so that a sentence is looked for on both sides.
    """
    held_out = [*held_out, *(p._replace(source=p.target, target=p.source) for p in held_out)]
    for name, extra in (source.extra or {}).items():
        drops = Drops(name, tell=tell)
        with progress(f"Reading data.extra.{name}"):
            heads, texts = peek({"train": extra.open()})
            pairs = clean(texts["train"], source.cleaning, scratch / name, drops)
        suspicious += _logged(on_demand(QUICK_LOOK)(heads, name))
        pairs = _without_overlap(pairs, held_out, source, f"data.extra.{name}", drops)
        _check_left(f"data.extra.{name}", pairs, drops.counts)
        yield Text(name, pairs, extra.tag, drops.counts)


def _without_overlap(
    pairs: PairTable, held_out: Sequence[Pair], source: Source, what: str, drops: Drops
) -> PairTable:
    """The pairs that share no sentence with dev or test; all under data.allow_overlap."""
    rest, overlap = drop_overlap(pairs, held_out, source.cleaning)
    if not overlap:
        return pairs
    allowed = source.allow_overlap
    log.warning(
        "%s %s of %s with a sentence of dev or test%s",
        "keeping" if allowed else "dropping", counted(overlap, "pair"), what,
        " (data.allow_overlap)" if allowed else "",
    )  # fmt: skip
    if allowed:
        return pairs
    drops.of_table("overlap", pairs, rest)
    return rest


# the key that keeps what a rule drops; what is empty or unreadable has none
REMEDIES = {
    "overlap": "they share a sentence with dev or test: to train on text that the model is judged "
    "by, as a check that it can learn, set data.allow_overlap=true",
    "too_long": "raise data.cleaning.max_characters, or set it to null",
    "length_ratio": "raise data.cleaning.length_ratio, or set it to null",
    "identical": "set data.cleaning.drop_identical=false to keep pairs with one text on both sides",
}


def _check_left(text: str, pairs: PairTable, dropped: Counter[str]) -> None:
    if not pairs:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in dropped.most_common())
        remedies = [REMEDIES[rule] for rule, _ in dropped.most_common(1) if rule in REMEDIES]
        check = "check the files and columns that data names, and the rules of data.cleaning"
        raise UserError(
            f"{text} is empty, or nothing of it is left (dropped: {rules or 'none'}); "
            f"{''.join(remedies) or check}"
        )
