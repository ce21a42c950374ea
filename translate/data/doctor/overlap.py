"""Pairs that occur twice: within a split, and in training as well as in dev or test."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from translate.data.doctor.finding import Finding, Splits, lines_of, number_of
from translate.data.pairs import Pair
from translate.data.text import sameness

SHINGLE = 5  # characters
NEAR = 0.85  # Jaccard similarity of the shingles of two pairs
Shingles = frozenset[str]


def duplicates(splits: Splits) -> Iterator[Finding]:
    """Pairs that stand in a split again, but for what `sameness` ignores."""
    notes = []
    for split, pairs in splits.items():
        first: dict[tuple[str, str], int] = {}
        for index, pair in enumerate(pairs):
            before = first.setdefault((sameness(pair.source), sameness(pair.target)), index)
            if before != index:
                notes.append((split, index, f"as line {number_of(pairs, before)}"))
    advice = (
        "data.cleaning.drop_duplicates drops exact ones from training; in test they count twice"
    )
    yield Finding("duplicate", "the same pair again", advice, lines_of(splits, notes))


def literal(splits: Splits, *, allow_one_side: bool) -> Iterator[Finding]:
    """Training pairs with a sentence of dev or test, and test pairs with one of dev.

    With `allow_one_side`, those with a whole pair.
    """
    notes = _shared(splits, "train", _held_out(splits), allow_one_side)
    advice = "dropped from training unless data.allow_overlap=true: scores would be too good"
    yield Finding("overlap", "training text in dev or test", advice, lines_of(splits, notes))
    if "dev" in splits and "test" in splits:
        notes = _shared(splits, "test", _held_out({"dev": splits["dev"]}), allow_one_side)
        advice = "remove them from dev, which chooses the model: test scores would be too good"
        yield Finding("dev_overlap", "test text in dev", advice, lines_of(splits, notes))


def _shared(
    splits: Splits, split: str, others: Sequence[tuple[str, Pair]], allow_one_side: bool
) -> list[tuple[str, int, str]]:
    """The pairs of a split with a sentence of the others, which come with where they stand."""
    sources: dict[str, str] = {}
    targets: dict[str, str] = {}
    for place, pair in others:
        sources.setdefault(sameness(pair.source), place)
        targets.setdefault(sameness(pair.target), place)
    whole = {(sameness(p.source), sameness(p.target)): place for place, p in others}
    notes = []
    for index, pair in enumerate(splits[split]):
        source, target = sameness(pair.source), sameness(pair.target)
        if (source, target) in whole:
            notes.append((split, index, f"both sides are {whole[source, target]}"))
        elif not allow_one_side and source in sources:
            notes.append((split, index, f"the source is that of {sources[source]}"))
        elif not allow_one_side and target in targets:
            notes.append((split, index, f"the target is that of {targets[target]}"))
    return notes


def near(splits: Splits) -> Iterator[Finding]:
    """Training pairs that are nearly one of dev or test, both sides taken together.

    A set similarity join with prefix filtering (Chaudhuri et al. 2006; Bayardo et al. 2007): two
    sets with a Jaccard similarity of j or more share one of the first |x| - ⌈j|x|⌉ + 1 elements of
    each, in any common order; rarest first, that is few candidates. Nothing is missed.
    """
    held_out = [(place, shingles(pair)) for place, pair in _held_out(splits)]
    frequency = Counter(shingle for _, found in held_out for shingle in found)
    index: defaultdict[str, list[int]] = defaultdict(list)
    for number, (_, found) in enumerate(held_out):
        for shingle in _prefix(found, frequency):
            index[shingle].append(number)
    literal = {(sameness(p.source), sameness(p.target)) for _, p in _held_out(splits)}
    notes = []
    for line, pair in enumerate(splits["train"]):
        if (sameness(pair.source), sameness(pair.target)) in literal:
            continue
        found = shingles(pair)
        candidates = {n for shingle in _prefix(found, frequency) for n in index.get(shingle, ())}
        similarity, place = max(
            ((jaccard(found, held_out[n][1]), held_out[n][0]) for n in candidates), default=(0, "")
        )
        if similarity >= NEAR:
            notes.append(("train", line, f"{similarity:.0%} of {place}"))
    advice = "remove them from training by hand if the test text should be unseen"
    yield Finding("near_overlap", "training pairs nearly in dev or test", advice,
                  lines_of(splits, notes))  # fmt: skip


def shingles(pair: Pair) -> Shingles:
    """All runs of five characters of both sides, told apart by side."""
    sides = (("s", sameness(pair.source)), ("t", sameness(pair.target)))
    return frozenset(
        side + text[start : start + SHINGLE]
        for side, text in sides
        for start in range(max(1, len(text) - SHINGLE + 1))
    )


def jaccard(one: Shingles, other: Shingles) -> float:
    """|A ∩ B| / |A ∪ B|."""
    return len(one & other) / len(one | other)


def _prefix(found: Shingles, frequency: Mapping[str, int]) -> list[str]:
    """The rarest elements, one of which any set that is similar enough must share."""
    order = sorted(found, key=lambda shingle: (frequency.get(shingle, 0), shingle))
    return order[: len(order) - math.ceil(NEAR * len(order)) + 1]


def _held_out(splits: Splits) -> list[tuple[str, Pair]]:
    """The pairs of all other splits with where they stand."""
    return [
        (f"{split} line {number_of(pairs, index)}", pair)
        for split, pairs in splits.items()
        if split != "train"
        for index, pair in enumerate(pairs)
    ]
