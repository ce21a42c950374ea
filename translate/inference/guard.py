"""The guard: it notices translations that cannot be right, and prefers better ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import Field

from translate.compose import filled, merged, node_of, refer, references_in
from translate.config import Node, read
from translate.data.plain_text import has_text, one_line, unspaced, without_surrogates
from translate.inference.batches import Segment
from translate.inference.confidence import evidence
from translate.inference.lines import Kind, Protection, never
from translate.inference.markup import Markup
from translate.inference.translation import Translation
from translate.search import AnySearchConfig, DiverseConfig, Search, SearchConfig, build

SURER = 0.25  # nats a piece: docs/benchmarks/robustness.md
LONGEST = 32  # pieces of a phrase that loops: the time of looking for it grows with them

Token = TypeVar("Token", bound=Hashable)
Retry = Callable[[Sequence[Segment]], list[list[Translation]]]


class Try(NamedTuple):
    """Translations of a segment, and what is wrong with the best of them."""

    damage: list[str]  # to protected items
    wrong: list[str]  # that, and all else
    n_best: list[Translation]


class GuardConfig(Node):
    """The node `guard`."""

    loop_times: int = Field(
        ge=2,
        description="repetitions of a phrase that count as a loop, where the source has none: "
        "three are emphasis",
    )
    loop_characters: int = Field(
        gt=0,
        description='characters of a loop in all, at least: "....." and "1000000" are no loops',
    )
    copy_share: float = Field(
        gt=0,
        le=1,
        description="share of a translation that is words of the source, from which on it is a "
        "copy: related languages stay below",
    )
    copy_letters: int = Field(
        gt=0,
        description="characters of a copy in all, at least: a name or two are rightly copied",
    )
    length_ratio: float = Field(
        gt=0,
        description="a translation of more UTF-8 bytes than ratio · source + offset is too long: "
        "from script to script the ratio is 3 at most",
    )
    length_offset: int = Field(ge=0, description="so many bytes more: a word may need a phrase")
    short_ratio: float = Field(
        ge=0,
        lt=1,
        description="a translation of fewer letters than ratio · source is too short: clauses are "
        "lost; a sign of a script without spaces counts as three letters; 0: none is",
    )
    short_letters: int = Field(
        gt=0, description="letters of a source, at least, whose translation may be too short"
    )
    stutter_times: int = Field(
        ge=2,
        description="repetitions of the same letters inside a word that count as a loop "
        "(quuuotion), where the source has none",
    )
    protect: tuple[Kind, ...] = Field(
        description="what must come through as it is; numbers are only compared"
    )
    again: AnySearchConfig = Field(
        description="how to search once more what looks wrong, but for lost items; what "
        "search.rules asks for holds as well, whichever is stricter"
    )

    def reading(self, markup: Markup) -> GuardConfig:
        """Return the node for lines that are read so: tags are protected in XML, else not."""
        kinds = [kind for kind in self.protect if kind != "tag"]
        protect = {"auto": self.protect, "none": tuple(kinds), "xml": (*kinds, "tag")}[markup]
        return self.model_copy(update={"protect": protect})

    def contradictions(self) -> Iterator[str]:
        if banned := self.again.rules.banned:
            yield (
                f"guard.again.rules.banned = {list(banned)}: set search.rules.banned, which both "
                "use"
            )


class Guard:
    """A search for loops, copies, nothing, too little or too much, and damage to protected items.

    Args:
        first: how the translations are searched that the guard watches over.
        lacks: tells whether the vocabulary of the source lacks a character.
        rare: tells whether a word of the source was rare in training.
        foreign: whether source and target are different languages, so that a copy is wrong.
        limiting: makes a search the same within the shortlist of the first search.
    """

    Config: ClassVar = GuardConfig

    def __init__(
        self,
        config: GuardConfig,
        first: SearchConfig,
        *,
        foreign: bool,
        lacks: Callable[[str], bool] = never,
        rare: Callable[[str], bool] = never,
        limiting: Callable[[Search], Search] | None = None,
    ) -> None:
        self.config, self.protection = config, Protection(config.protect, lacks, rare)
        again = build(second(config.again, first))
        self.again = again if limiting is None else limiting(again)
        self._foreign = foreign
        self._stutter = re.compile(rf"([^\W\d_]{{1,4}})\1{{{config.stutter_times - 1}}}")

    def findings(self, source: Segment, translation: Translation) -> list[str]:
        """List what is wrong with a translation, in words; nothing, nearly always."""
        wrong = [*translation.flags] if translation.finished else [*translation.flags, "unfinished"]
        most = self.config.length_ratio * _bytes(source.text) + self.config.length_offset
        if _bytes(translation.text) > most + _bytes(source.asked):
            wrong.append("too long")
        if not has_text(translation.text) and any(map(str.isalnum, source.text)):
            wrong.append("empty")
        letters = _letters(source.text)
        if letters >= self.config.short_letters and _letters(translation.text) < (
            self.config.short_ratio * letters
        ):
            wrong.append("too short")
        if self._loops(source, translation):
            wrong.append("loop")
        if self._foreign and self._copies(source, translation.text):
            wrong.append("copy")
        return wrong

    def watch(
        self,
        segments: Sequence[Segment],
        n_best: Sequence[list[Translation]],
        *,
        without: Retry,
        renamed: Retry,
        apart: Retry,
        again: Retry,
    ) -> list[list[Translation]]:
        """Return the n best of each segment, replaced where the best is wrong; all flagged.

        Args:
            without: translates a segment with other names, or without, and puts them back.
            renamed: translates a segment with a common name for its first word, which is put back;
                none where it is lost.
            apart: translates a segment clause by clause.
            again: translates by the other search.
        """
        first = list(map(self._tried, segments, n_best))
        suspects = [i for i, one in enumerate(first) if one.damage]
        kept = self._improved(segments, first, suspects, without)
        self._name_first(segments, first, kept, renamed)
        suspects = [i for i, one in enumerate(kept) if "too short" in one.wrong]
        kept = self._improved(segments, kept, suspects, apart)
        suspects = [i for i, one in enumerate(kept) if one.wrong]
        kept = self._improved(segments, kept, suspects, partial(_unlearned, again))
        return list(map(self._reported, segments, first, kept))

    def whole(
        self, line: str, asked: str, n_best: list[Translation], read: Callable[[str], str]
    ) -> list[Translation]:
        """Flag the n best of a line where a cut between segments went through an item.

        Args:
            asked: words of its constraint, which the line need not have.
            read: what a line with markup stands for.
        """
        line = read(one_line(without_surrogates(line)))
        damage = [self.protection.damage(line, read(one.text), asked) for one in n_best]
        return list(map(_flagged, n_best, damage))

    def _tried(self, segment: Segment, n_best: list[Translation]) -> Try:
        return Try(*self._judged(segment, n_best[0]), n_best)

    def _judged(self, segment: Segment, translation: Translation) -> tuple[list[str], list[str]]:
        """Return the damage that a translation does, and all that is wrong with it."""
        damage = self.protection.damage(segment.text, translation.text, segment.asked)
        return damage, self.findings(segment, translation) + damage

    def _improved(
        self,
        segments: Sequence[Segment],
        tries: Sequence[Try],
        suspects: Sequence[int],
        retry: Retry,
    ) -> list[Try]:
        """Return the better of two tries for each suspect: less damage, then less wrong at all.

        Damage comes first, for it is done to what is the user's own. Of equals the first is kept.
        """
        kept = list(tries)
        if suspects:
            for i, other in zip(suspects, retry([segments[i] for i in suspects]), strict=True):
                both = [kept[i], self._tried(segments[i], other)]
                kept[i] = min(both, key=lambda one: (len(one.damage), len(one.wrong)))
        return kept

    def _name_first(
        self, segments: Sequence[Segment], first: list[Try], kept: list[Try], renamed: Retry
    ) -> None:
        """Read a rare first word as a name, where the model is surer of the sentence then."""
        suspects = {}
        for i, (segment, one) in enumerate(zip(segments, kept, strict=True)):
            for start, end in self.protection.first_name(segment.text):
                if segment.text[start:end] not in one.n_best[0].text:
                    suspects[i] = segment.text[start:end]
        others = renamed([segments[i] for i in suspects]) if suspects else []
        for (i, name), n_best in zip(suspects.items(), others, strict=True):
            if n_best and _sure(n_best) > _sure(kept[i].n_best) + SURER:
                first[i].wrong.append(f"lost {name}")
                kept[i] = self._tried(segments[i], n_best)

    def _reported(self, segment: Segment, first: Try, kept: Try) -> list[Translation]:
        """Add what is still wrong with each, and what only was with the first of all."""
        wrong = [kept.wrong, *(self._judged(segment, one)[1] for one in kept.n_best[1:])]
        best, *others = (
            _flagged(one, flags + self.protection.numbers(segment.text, one.text, segment.asked))
            for one, flags in zip(kept.n_best, wrong, strict=True)
        )
        mended = tuple(finding for finding in first.wrong if finding not in kept.wrong)
        return [replace(best, mended=mended) if mended else best, *others]

    def _loops(self, source: Segment, translation: Translation) -> bool:
        """Tell whether pieces come again and again, not so in the source or what is asked for."""
        times = self.config.loop_times
        parts = loops(translation.tokens, times)
        long = any(sum(map(len, part)) >= self.config.loop_characters for part in parts)
        meant = any(loops(source.ids, times)) or any(loops(source.asked.split(), times))
        if long and not meant:
            return True
        if not self._stutter.search(translation.text):
            return False
        return not any(
            self._stutter.search("".join(t.split())) for t in (source.text, source.asked)
        )

    def _copies(self, source: Segment, translation: str) -> bool:
        """Tell whether most words are the source's; protected and asked for ones do not count."""
        known = set(self.protection.without(source.text).split())
        asked = source.asked.split()
        words = [word for word in translation.split() if word not in asked]
        copied = sum(map(len, filter(known.__contains__, words)))
        return copied >= max(
            self.config.copy_share * sum(map(len, words)), self.config.copy_letters
        )


def configured(chosen: str | Mapping[str, Any], first: SearchConfig) -> GuardConfig | None:
    """Return the node of a guard, of which a program has named the option, or some keys.

    Args:
        chosen: `default`, `none`, or keys of conf/guard; of its search `again`, the name of an
            option of conf/search, or keys of it.
        first: the search whose limits it refers to.

    Raises:
        UserError: no such option or key, or a value out of range.
    """
    if isinstance(chosen, str):
        node = filled("guard", chosen, {})
    else:
        again = chosen.get("again", {})
        name = again.get("kind") if isinstance(again, Mapping) else again
        if name is not None:
            filled("search", str(name), {})  # refuses one that there is not
        node = node_of("guard", "default", {} if name is None else {"again": name})
        node = merged(node, {**chosen, "again": again if isinstance(again, Mapping) else {}})
    if not node:
        return None
    values = {"guard": node, "search": first.model_dump(mode="json")}
    refer(values, references_in(values))
    return read(GuardConfig, values["guard"], "guard")


def second(again: SearchConfig, first: SearchConfig) -> SearchConfig:
    """Give the search `again` as many translations as the first gives, and the rules of both."""
    changes: dict[str, Any] = {"rules": again.rules.stricter(first.rules)}
    n_best = getattr(first, "n_best", 1)  # greedy search has no such key
    for key in {"n_best", "beam_size"} & type(again).model_fields.keys():
        changes[key] = max(getattr(again, key), n_best)
    if isinstance(again, DiverseConfig):
        changes["beam_size"] = math.ceil(changes["beam_size"] / again.groups) * again.groups
    return again.model_copy(update=changes)


def _sure(n_best: Sequence[Translation]) -> float:
    return evidence(n_best[0].log_prob, len(n_best[0].tokens))


def _unlearned(retry: Retry, segments: Sequence[Segment]) -> list[list[Translation]]:
    """Leave out confidence, which was learned for the first search only."""
    return [[replace(one, confidence=None) for one in n_best] for n_best in retry(segments)]


def _flagged(translation: Translation, flags: list[str]) -> Translation:
    """Add these flags to its own, each once."""
    return (
        replace(translation, flags=tuple(dict.fromkeys((*translation.flags, *flags))))
        if flags
        else translation
    )


def loops(tokens: Sequence[Token], times: int) -> Iterator[Sequence[Token]]:
    """Yield parts of `tokens` that are one phrase at least `times` in a row; each as it grows."""
    repeated = len(tokens) - len(set(tokens))  # a phrase of n tokens repeats (times - 1) · n
    for size in range(1, min(LONGEST, repeated // (times - 1)) + 1):
        run = 0  # so many tokens are those `size` before them
        for end in range(size, len(tokens)):
            run = run + 1 if tokens[end] == tokens[end - size] else 0
            if run >= (times - 1) * size:
                yield tokens[end + 1 - run - size : end + 1]


def _letters(text: str) -> int:
    """Count letters and digits, as many as a sign of a script without spaces stands for."""
    return sum(3 if unspaced(each) else 1 for each in text if each.isalnum())


def _bytes(text: str) -> int:
    """Return the length in UTF-8: languages differ less in bytes than in characters."""
    return len(text.encode("utf-8", "replace"))
