"""Notices translations that cannot be right, whatever the model, and prefers better ones."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt

from translate import search as searches
from translate.data.text import has_text, one_line, without_surrogates
from translate.inference.batches import Segment
from translate.inference.protection import Kind, Protection
from translate.inference.text_constraints import TextConstraint
from translate.inference.translation import Translation
from translate.search import Search
from translate.search.rules import NO_RULES, Rules
from translate.search.shortlist import Shortlist, within

log = logging.getLogger(__name__)

LONGEST = 32  # pieces of a phrase that loops: the time of looking for it grows with them

Token = TypeVar("Token", bound=Hashable)
Retry = Callable[[Sequence[Segment]], list[list[Translation]]]


class Try(NamedTuple):
    """Translations of a segment, and what is wrong with the best of them."""

    damage: list[str]  # to protected items
    wrong: list[str]  # that, and all else
    found: list[Translation]


class Guard:
    """Looks for loops, copies, nothing, too much, and damage to what must stay as it is.

    Args:
        again: the search that decodes once more what looks wrong.
        foreign: whether source and target are different languages, so that a copy is wrong.

    conf/guard/default.yaml has the other keys.
    """

    def __init__(
        self,
        *,
        again: Search,
        foreign: bool,
        loop_times: Annotated[int, Field(ge=2)],
        loop_characters: PositiveInt,
        copy_share: Annotated[float, Field(gt=0, le=1)],
        copy_letters: PositiveInt,
        length_ratio: Annotated[float, Field(gt=0)],
        length_offset: NonNegativeInt,
        protect: tuple[Kind, ...],
    ) -> None:
        self.again, self.protection = again, Protection(protect)
        self._loop = (loop_times, loop_characters)
        self._copy = (copy_share, copy_letters)
        self._length = (length_ratio, length_offset)
        self._foreign = foreign

    @classmethod
    def of(
        cls,
        node: Mapping[str, Any],
        search: Mapping[str, Any],
        *,
        languages: tuple[str, str],
        shortlist: Shortlist | None,
    ) -> Guard:
        """What watches over translations by `search`, the keys of conf/search.

        Args:
            node: the keys of conf/guard; `again` is then laid over by what `search` asks for.
            languages: of source and target.
            shortlist: that of the first search.
        """
        again = within(searches.build(**second(node["again"], search)), shortlist)
        return cls(**{**node, "again": again}, foreign=languages[0] != languages[1])

    def findings(self, source: Segment, found: Translation) -> list[str]:
        """What is wrong with a translation, in words; nothing, nearly always."""
        ratio, offset = self._length
        wrong = [] if found.finished else ["unfinished"]
        if _bytes(found.text) > ratio * _bytes(source.text) + offset + _bytes(source.asked):
            wrong.append("too long")
        if not has_text(found.text) and any(map(str.isalnum, source.text)):
            wrong.append("empty")
        if self._loops(source, found):
            wrong.append("loop")
        if self._foreign and self._copies(source, found.text):
            wrong.append("copy")
        return wrong

    def watch(
        self,
        segments: Sequence[Segment],
        found: Sequence[list[Translation]],
        *,
        around: Retry,
        again: Retry,
    ) -> list[list[Translation]]:
        """The n best of each segment, replaced where something is wrong with the best; all flagged.

        Args:
            around: translates what is between protected items, which are copied.
            again: translates by the other search.
        """
        first = list(map(self._tried, segments, found))
        kept = self._improved(segments, first, attrgetter("damage"), around)
        kept = self._improved(segments, kept, attrgetter("wrong"), again)
        return list(map(self._told, segments, first, kept))

    def whole(
        self, line: str, constraint: TextConstraint, found: list[Translation]
    ) -> list[Translation]:
        """The n best of a line, flagged where a cut between segments went through an item."""
        line, asked = one_line(without_surrogates(line)), constraint.words
        return [_flagged(one, self.protection.damage(line, one.text, asked)) for one in found]

    def _tried(self, segment: Segment, found: list[Translation]) -> Try:
        return Try(*self._judged(segment, found[0]), found)

    def _judged(self, segment: Segment, found: Translation) -> tuple[list[str], list[str]]:
        """The damage that a translation does, and all that is wrong with it."""
        damage = self.protection.damage(segment.text, found.text, segment.asked)
        return damage, self.findings(segment, found) + damage

    def _improved(
        self,
        segments: Sequence[Segment],
        tries: Sequence[Try],
        suspect: Callable[[Try], list[str]],
        retry: Retry,
    ) -> list[Try]:
        """The better of two tries for each suspect: with less damage, then with less wrong at all.

        Damage comes first, for it is done to what is the user's own; of equals the first is kept.
        """
        kept = list(tries)
        suspects = [i for i, one in enumerate(tries) if suspect(one)]
        if suspects:
            for i, other in zip(suspects, retry([segments[i] for i in suspects]), strict=True):
                both = kept[i], self._tried(segments[i], other)
                kept[i] = min(both, key=lambda one: (len(one.damage), len(one.wrong)))
        return kept

    def _told(self, segment: Segment, first: Try, kept: Try) -> list[Translation]:
        """With what is still wrong with each, and what only was with the first of all."""
        if kept is not first:  # confidence was not learned for other searches
            kept = kept._replace(found=[replace(one, confidence=None) for one in kept.found])
        wrong = [kept.wrong, *(self._judged(segment, one)[1] for one in kept.found[1:])]
        best, *others = (
            _flagged(one, flags + self.protection.numbers(segment.text, one.text, segment.asked))
            for one, flags in zip(kept.found, wrong, strict=True)
        )
        mended = tuple(finding for finding in first.wrong if finding not in kept.wrong)
        return [replace(best, mended=mended) if mended else best, *others]

    def _loops(self, source: Segment, found: Translation) -> bool:
        """Whether pieces come again and again, not so in the source nor in what is asked for."""
        times, characters = self._loop
        ends = [0, *found.breaks, len(found.tokens)]
        stretches = (found.tokens[start:end] for start, end in itertools.pairwise(ends))
        parts = itertools.chain.from_iterable(loops(tokens, times) for tokens in stretches)
        long = any(sum(map(len, part)) >= characters for part in parts)
        meant = any(loops(source.ids, times)) or any(loops(source.asked.split(), times))
        return long and not meant

    def _copies(self, source: Segment, translation: str) -> bool:
        """Whether most words are the source's: not of protected items, nor of what is asked for."""
        share, least = self._copy
        known = set(" ".join(self.protection.parts(source.text)[::2]).split())
        asked = source.asked.split()
        words = [word for word in translation.split() if word not in asked]
        copied = sum(map(len, filter(known.__contains__, words)))
        return copied >= max(share * sum(map(len, words)), least)


def second(again: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """The search `again` with as many translations as the first gives, and the rules of both."""
    rules = Rules(**first["rules"]) if "rules" in first else NO_RULES
    changes: dict[str, Any] = {"rules": dict(Rules(**again["rules"]).stricter(rules))}
    for key in {"n_best", "beam_size"} & again.keys():
        changes[key] = max(again[key], first.get("n_best", 1))
    if "groups" in again:
        changes["beam_size"] = math.ceil(changes["beam_size"] / again["groups"]) * again["groups"]
    return {**again, **changes}


def _flagged(found: Translation, flags: list[str]) -> Translation:
    """With these flags beside its own, each once."""
    return replace(found, flags=tuple(dict.fromkeys((*found.flags, *flags)))) if flags else found


def loops(tokens: Sequence[Token], times: int) -> Iterator[Sequence[Token]]:
    """Parts of `tokens` that are one phrase at least `times` in a row; each as it grows."""
    repeated = len(tokens) - len(set(tokens))  # a phrase of n tokens repeats (times - 1) · n
    for size in range(1, min(LONGEST, repeated // (times - 1)) + 1):
        run = 0  # so many tokens are those `size` before them
        for end in range(size, len(tokens)):
            run = run + 1 if tokens[end] == tokens[end - size] else 0
            if run >= (times - 1) * size:
                yield tokens[end + 1 - run - size : end + 1]


def _bytes(text: str) -> int:
    """Length in UTF-8: languages differ less in bytes than in characters."""
    return len(text.encode("utf-8", "replace"))


def warn(best: Translation, number: int) -> None:
    """Tell what was done about a line, and what could not be."""
    if best.mended:
        log.warning("line %d was translated again: %s", number, ", ".join(best.mended))
    if best.flags:
        log.warning("line %d may be wrong: %s", number, ", ".join(best.flags))
