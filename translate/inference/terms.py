"""Terminology: what terms of the source are to be called in the translation.

A translation that has its terms by itself stays as it is. Where one is missing, the sentence is
searched again with the term as a phrase that must occur (`search/constraints.py`), in each of its
forms, and the likeliest of these is taken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from translate.compose import node_of
from translate.data.plain_text import read_lines, spaced
from translate.errors import UserError
from translate.inference.batches import Segment
from translate.inference.text_constraints import ConstraintEncoder, places
from translate.inference.translation import Find, Translation
from translate.search import BeamConfig, Search, SearchConfig, build

LONGEST = 200  # characters of a line
BEAM = 10  # a narrow beam has few places for hypotheses with a phrase
MOST = 8  # choices of forms for a sentence that are tried
WORD = re.compile(r"\w+|[^\w\s]")
END = re.compile(r"[.!?…](?=\s|$)|[。！？]")  # of a sentence

Words = tuple[str, ...]


class Term(NamedTuple):
    """A term as the source writes it, and what it may be called."""

    source: str
    targets: Words

    def is_in(self, translation: str) -> bool:
        """Tell whether a translation has one of its forms, as whole words."""
        return any(_stands_in(target, translation) for target in self.targets)

    @property
    def forms(self) -> list[str]:
        """The targets in the case of the source."""
        if self.source.isupper() and len(self.source) > 1:
            return [target.upper() for target in self.targets]
        capital = self.source[0].isupper()
        also = [target[0].upper() + target[1:] for target in self.targets if capital]
        return list(dict.fromkeys((*self.targets, *also)))


class Terms:
    """A glossary.

    A term in small letters is meant in any case; one with capitals as it is written, or wholly in
    capitals. Terms are whole words, and the longest wins.

    Args:
        pairs: terms of the source with one of their targets each.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        targets: dict[str, list[str]] = defaultdict(list)
        for source, target in pairs:
            targets[source].append(target)
        self._terms: dict[Words, list[Term]] = defaultdict(list)
        for source, several in targets.items():
            words = tuple(word.casefold() for word, _, _ in _words(source))
            self._terms[words].append(Term(source, tuple(dict.fromkeys(several))))
        self._longest = max(map(len, self._terms), default=0)

    @classmethod
    def read(cls, path: str | Path) -> Terms:
        """Read a file of SOURCE, TAB, TARGET; blank lines and those that begin with # are skipped.

        Raises:
            UserError: no such file, a line of another form, or no term at all.
        """
        pairs = []
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            sides = [side.strip() for side in line.split("\t")]
            if len(sides) != 2 or not all(sides) or len(line) > LONGEST:
                raise UserError(
                    f"{path}, line {number}: {line[:LONGEST]!r}: write SOURCE, a tab and TARGET, "
                    f"together {LONGEST} characters at most"
                )
            pairs.append((sides[0], sides[1]))
        if not pairs:
            raise UserError(
                f"{path} has no terms: write a line of SOURCE, a tab and TARGET for each"
            )
        return cls(pairs)

    def within(self, text: str) -> list[Term]:
        """Return the terms of a text, as it writes them, in order."""
        words, terms, place = list(_words(text)), list[Term](), 0
        while place < len(words):
            size = next(self._sizes(text, words, place, terms), 1)
            place += size
        return terms

    def _sizes(
        self, text: str, words: Sequence[tuple[str, int, int]], place: int, terms: list[Term]
    ) -> Iterator[int]:
        """Add the longest term that begins at this word, and yield how many words it has."""
        for size in range(min(self._longest, len(words) - place), 0, -1):
            part = words[place : place + size]
            written = text[part[0][1] : part[-1][2]]
            for term in self._terms.get(tuple(word.casefold() for word, _, _ in part), ()):
                if _fits(term.source, written):
                    terms.append(term._replace(source=written))
                    yield size
                    return


def lacking(terms: Sequence[Term], n_best: Sequence[Translation]) -> list[Term]:
    """Return the terms that the best translation has in none of their forms."""
    return [term for term in terms if not term.is_in(n_best[0].text)]


def choices(missing: Sequence[Term]) -> list[Words]:
    """Return the ways to choose a form of each term, at most `MOST`; none where none is missing."""
    return list(islice(product(*(term.forms for term in missing)), MOST)) if missing else []


def with_terms(
    terms: Terms,
    encoder: ConstraintEncoder,
    search: Find,
    segments: Sequence[Segment],
    *,
    by: str = "first",
) -> list[list[Translation]]:
    """Return the n best of each; one without its terms is searched again, with them.

    Args:
        by: the search that comes first.
    """
    n_best = search(segments, by=by)
    wanted = [terms.within(each.text) for each in segments]
    parts = [
        (i, segment._replace(constraint=constraint))
        for i, segment in enumerate(segments)
        for texts in choices(lacking(wanted[i], n_best[i]))
        if (constraint := encoder.with_phrases(segment.constraint, texts)) is not None
    ]
    tries = [[each] for each in n_best]
    if parts:
        numbers, again = zip(*parts, strict=True)
        for i, answers in zip(numbers, search(again, by="terms"), strict=True):
            # a term that fits nowhere comes as a sentence of its own
            if len(END.findall(answers[0].text)) <= len(END.findall(n_best[i][0].text)):
                # confidence was not learned for other searches
                tries[i].append([replace(one, confidence=None) for one in answers])
    return list(map(_with_most, wanted, tries))


def _with_most(terms: Sequence[Term], tries: Sequence[list[Translation]]) -> list[Translation]:
    """Return the n best that lack the fewest terms, of these the likeliest; flag those it lacks."""
    best, *others = min(tries, key=lambda one: (len(lacking(terms, one)), -one[0].score))
    flags = tuple(f"no term for {term.source}" for term in lacking(terms, [best]))
    return [replace(best, flags=best.flags + flags) if flags else best, *others]


def term_search(first: SearchConfig | None) -> Search:
    """Return the beam that finds translations with given terms, within the limits of the first."""
    node = node_of("search", "beam") | (first.model_dump(exclude={"kind"}) if first else {})
    known = {key: value for key, value in node.items() if key in BeamConfig.model_fields}
    return build({**known, "beam_size": max(known["beam_size"], BEAM)})


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield words, each letter of a script without spaces by itself, with their places."""
    for match in WORD.finditer(text):
        start = match.start()
        for part in spaced(match[0]).split():
            yield part, start, start + len(part)
            start += len(part)


def _fits(term: str, written: str) -> bool:
    small = term == term.lower()
    return small or " ".join(written.split()) in (term, term.upper())


def _stands_in(target: str, text: str) -> bool:
    if target == target.lower():
        return any(places(target, text.lower()))
    return any(places(target, text)) or any(places(target.upper(), text))
