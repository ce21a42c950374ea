"""Rules for the pairs that are worth learning from, and a record of every other one."""

from __future__ import annotations

import logging
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Int
from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from translate.config import Node
from translate.data.pairs import Pair, PairTable, Unreadable, digests, write_pairs
from translate.data.plain_text import has_text, sameness

log = logging.getLogger(__name__)
SUSPICIOUS = 0.05  # share of the pairs that differ too much in length
RULES = ("unreadable", "empty", "too_long", "length_ratio", "identical", "duplicate", "overlap")


class Dropped(NamedTuple):
    """A training pair that is left out, its text tidy: as the rules saw it."""

    rule: str
    corpus: str  # main, or a name of data.extra
    line: int  # of its files, as `Source.first_line` counts
    source: str
    target: str
    repeats: int | None = None  # of a duplicate: the line of the first pair like it


Tell = Callable[[Dropped], None]


class Drops:
    """Pairs that are left out of one corpus: `counts` by rule, and each pair goes to `tell`.

    Memory holds numbers for each pair that is left out, and nothing of those that are kept.
    """

    def __init__(self, corpus: str, *, first_line: int = 1, tell: Tell | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._corpus, self._first_line, self._tell = corpus, first_line, tell
        self._unwritten = array("q")  # which of the pairs that were read are in no table, from 0

    def unwritten(self, rule: str, index: int, pair: Pair) -> None:
        """Leave out the pair of this index, from 0 and rising, before it comes into a table."""
        self.counts[rule] += 1
        if self._tell is not None:
            self._unwritten.append(index)
            self._tell(self._named(rule, index, pair))

    def of_table(
        self, rule: str, pairs: PairTable, kept: PairTable, repeated: PairTable | None = None
    ) -> None:
        """Leave out those `pairs` that are not `kept`, both of the table of all that remained.

        `repeated` is, of each that is left out as a duplicate, the first pair like it.
        """
        if len(pairs) == len(kept):
            return
        self.counts[rule] += len(pairs) - len(kept)
        if self._tell is not None:
            left_out = pairs.without(kept)
            indices, firsts = self._indices(left_out).tolist(), [None] * len(left_out)
            if repeated is not None:
                firsts = self._indices(repeated).tolist()
            for index, pair, first in zip(indices, left_out, firsts, strict=True):
                self._tell(self._named(rule, index, pair, first))

    def _indices(self, pairs: PairTable) -> Int[np.ndarray, "pairs"]:
        """Return their numbers among all pairs read; some of those did not reach the table."""
        unwritten = np.array(self._unwritten, dtype=np.int64)
        before = unwritten - np.arange(len(unwritten))  # pairs of the table before each gap
        return pairs.places + np.searchsorted(before, pairs.places, side="right")

    def _named(self, rule: str, index: int, pair: Pair, first: int | None = None) -> Dropped:
        line = self._first_line + index
        repeats = None if first is None else self._first_line + first
        return Dropped(rule, self._corpus, line, pair.source, pair.target, repeats)


class Cleaning(Node):
    """The node `data.cleaning`: rules for the training text alone."""

    replace: list[tuple[str, str]] = Field(
        description="[regular expression, replacement] pairs, applied in order before all rules"
    )
    max_characters: PositiveInt | None = Field(
        description="longer sentences are dropped; null: none for its length"
    )
    length_ratio: Annotated[float, Field(ge=1)] | None = Field(
        description="pairs are dropped with one side more than this many times as long as the "
        "other, in characters; null: none; beside Chinese, which takes a third of the characters "
        "of English, 6 is right"
    )
    ratio_slack: PositiveFloat = Field(
        description="characters added to both sides before length_ratio compares them: it spares "
        "short sentences"
    )
    drop_identical: bool = Field(
        description="drop a pair with the same text on both sides, which is no translation"
    )
    drop_duplicates: bool = Field(description="drop a pair that occurred before")

    @field_validator("replace")
    @classmethod
    def _compiles(cls, replace: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for pattern, replacement in replace:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from None
            try:
                compiled.sub(replacement, "")
            except (re.error, IndexError) as error:
                raise ValueError(
                    f"{replacement!r} cannot replace what {pattern!r} finds ({error})"
                ) from None
        return replace


def clean(
    pairs: Iterable[Pair],
    rules: Cleaning,
    path: Path,
    drops: Drops,
    *,
    whole: Collection[str] = (),
) -> PairTable:
    """The pairs that pass every rule, in the file `path`; the others go to `drops`.

    A pair counts for the first rule that it breaks. Before them all, `rules.replace` is applied.
    Groups that are to be held out `whole` lose empty pairs alone, and those that they have twice.
    """
    table = write_pairs(path, _passing(tidy(pairs, rules), rules, drops, whole))
    if rules.drop_duplicates:
        distinct, repeated = first_of_each(table, whole)
        drops.of_table("duplicate", table, distinct, repeated)
        table = distinct
    read = len(table) + drops.counts.total()
    if drops.counts["length_ratio"] > SUSPICIOUS * read:
        log.warning(
            "data.cleaning.length_ratio = %g drops %d of %d pairs; where one script needs fewer "
            "characters, it drops the long pairs first: 6 suits Chinese and English",
            rules.length_ratio, drops.counts["length_ratio"], read,
        )  # fmt: skip
    return table


def tidy(pairs: Iterable[Pair], rules: Cleaning) -> Iterator[Pair]:
    """Apply `rules.replace` in order, then make runs of white space one space, none at the ends.

    With a replacement words may not stand where an alignment counts them: it is left out.
    """
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in rules.replace]

    def mend(text: str) -> str:
        for pattern, replacement in patterns:
            text = pattern.sub(replacement, text)
        return " ".join(text.split())

    for pair in pairs:
        alignment = () if patterns else pair.alignment
        yield pair._replace(source=mend(pair.source), target=mend(pair.target), alignment=alignment)


def _passing(
    pairs: Iterable[Pair], rules: Cleaning, drops: Drops, whole: Collection[str]
) -> Iterator[Pair]:
    for index, pair in enumerate(pairs):
        rule = _broken_rule(pair, rules)
        if rule is None or (rule not in ("unreadable", "empty") and pair.group in whole):
            yield pair
        else:
            drops.unwritten(rule, index, pair)


def first_of_each(pairs: PairTable, whole: Collection[str] = ()) -> tuple[PairTable, PairTable]:
    """Return each distinct pair where it first occurs, and the first one like each of the others.

    In each group that is `whole`, for itself.
    """
    # a line break, which tidy text has not, keeps (ab, c) from being (a, bc)
    texts = (pair[:2] if pair.group not in whole else (*pair[:2], pair.group) for pair in pairs)
    numbers = digests(map("\n".join, texts))
    distinct, firsts = np.unique(numbers, return_index=True)
    others = np.delete(numbers, firsts)
    return pairs.at(np.sort(firsts)), pairs.at(firsts[np.searchsorted(distinct, others)])


def _broken_rule(pair: Pair, rules: Cleaning) -> str | None:
    if isinstance(pair, Unreadable):
        return "unreadable"
    if not (has_text(pair.source) and has_text(pair.target)):
        return "empty"
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if rules.max_characters is not None and longer > rules.max_characters:
        return "too_long"
    # the slack is added to both: "Go." may well be "Váyanse."
    if rules.length_ratio is not None and longer + rules.ratio_slack > rules.length_ratio * (
        shorter + rules.ratio_slack
    ):
        return "length_ratio"
    if rules.drop_identical and sameness(pair.source) == sameness(pair.target):
        return "identical"
    return None


def drop_overlap(
    train: PairTable, held_out: Sequence[Pair], rules: Cleaning
) -> tuple[PairTable, int]:
    """Return `train` without pairs that share a sentence with `held_out`, and their number.

    `train` has gone through `rules.replace`. `held_out`, which may not have, is looked for as it is
    and as those rules would write it.
    """
    sources, targets = set(), set()
    for pair in chain(held_out, tidy(held_out, rules)):
        sources.add(sameness(pair.source))
        targets.add(sameness(pair.target))
    apart = np.fromiter(
        (sameness(p.source) not in sources and sameness(p.target) not in targets for p in train),
        dtype=bool,
    )
    kept = train.at(np.flatnonzero(apart))
    return kept, len(train) - len(kept)
