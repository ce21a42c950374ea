"""Sentences in the wrong language: a copy, the other side's by the corpus itself, or a third."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import repeat
from statistics import median

from translate.data.doctor.finding import Finding, Splits, drawn, lines_of, sides
from translate.data.pairs import Pair
from translate.data.text import has_text, normalise, sameness
from translate.wording import install

log = logging.getLogger(__name__)

GRAM = 3  # characters
LEARNED = 20_000  # training pairs to learn the two languages from …
USUAL = 2_000  # … and of these at most, to know the usual sentence of each by
FEWEST = 100  # pairs, to tell the languages apart by
SHORTEST = 20  # characters of a side that is judged
LIKE_THE_OTHER = 0.4  # of the way to the other language's usual sentence
SURE = 0.9  # probability of another language
LONG = 50  # characters from which on another language is told
WHICH = {
    (True, True): "the sides are swapped",
    (True, False): "the source looks like the target language",
    (False, True): "the target looks like the source language",
}


def copies(splits: Splits) -> Iterator[Finding]:
    """Pairs of one sentence twice, but for what `sameness` ignores; empty ones are none."""
    notes = [
        (split, index, "both sides are the same")
        for split, pairs in splits.items()
        for index, pair in enumerate(pairs)
        if _copied(pair) and has_text(pair.source)
    ]
    advice = "cleaning drops such training pairs; in dev and test, supply the translation"
    yield Finding("copy", "a copy, not a translation", advice, lines_of(splits, notes))


def swapped_sides(splits: Splits) -> Iterator[Finding]:
    """Sides in the language of the other side, both (swapped) or one (not translated).

    A sentence is weighed by its character trigrams: the mean of log P(trigram | source language) -
    log P(trigram | target language), both learned from the training text (Cavnar & Trenkle 1994
    rank such trigrams; Dunning 1994 weighs them like this). Of copies nothing is learned nor said.
    """
    advice = "exchange the sides, or remove the pair"
    yield Finding("other_side", "a side in the other side's language", advice,
                  lines_of(splits, _leaning(splits)))  # fmt: skip


def _leaning(splits: Splits) -> Iterator[tuple[str, int, str]]:
    """Split, index and which sides; nothing where the text does not tell the languages apart."""
    pairs = splits["train"]
    train = [pairs[i] for i in drawn(pairs, LEARNED) if not _copied(pairs[i])]
    if len(train) < FEWEST:
        return
    weigh = _Scales([p.source for p in train], [p.target for p in train])
    usual = train[:: 1 + len(train) // USUAL]
    source, target = (
        median(weigh(getattr(pair, side)) for pair in usual) for side in ("source", "target")
    )
    if not source > 0 > target:
        return
    for split, pairs in splits.items():
        for index, pair in enumerate(pairs):
            foreign = (
                len(pair.source) >= SHORTEST and weigh(pair.source) < LIKE_THE_OTHER * target,
                len(pair.target) >= SHORTEST and weigh(pair.target) > LIKE_THE_OTHER * source,
            )
            if any(foreign) and not _copied(pair):
                yield split, index, WHICH[foreign]


def _copied(pair: Pair) -> bool:
    return sameness(pair.source) == sameness(pair.target)


class _Scales:
    """Positive for what looks like the first language, negative for the second."""

    def __init__(self, first: Iterable[str], second: Iterable[str]) -> None:
        one = Counter(gram for text in first for gram in _grams(text))
        two = Counter(gram for text in second for gram in _grams(text))
        kinds = len(one.keys() | two.keys()) + 1
        totals = (one.total() + kinds, two.total() + kinds)
        self.weights = {
            gram: math.log((one[gram] + 1) / totals[0]) - math.log((two[gram] + 1) / totals[1])
            for gram in one.keys() | two.keys()
        }

    def __call__(self, text: str) -> float:
        grams = _grams(text)
        return sum(map(self.weights.get, grams, repeat(0.0))) / max(1, len(grams))


def _grams(text: str) -> list[str]:
    padded = f" {normalise(text)} "
    return [padded[start : start + GRAM] for start in range(len(padded) - GRAM + 1)]


def other_languages(splits: Splits, *, codes: tuple[str, str]) -> Iterator[Finding]:
    """Long sentences that are surely in another language, by py3langid (Lui & Baldwin 2012).

    That is a third one, or the other side's where most of a side are in it; the sides should be in
    the languages of these codes. Nothing where py3langid is missing or does not know both: it is
    logged.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError:
        log.info("not looking for other languages: %s", install("doctor"))
        return
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if unknown := set(codes) - set(identifier.labels):
        log.info("not looking for other languages: py3langid does not know %s",
                 ", ".join(sorted(unknown)))  # fmt: skip
        return
    sure = [
        (split, index, side, language)
        for split, index, side, text in sides(splits)
        if len(text) >= LONG
        for language, probability in [identifier.classify(text)]
        if probability > SURE
    ]
    counts = Counter((split, side, language) for split, _, side, language in sure)
    meant = dict(zip(("source", "target"), codes, strict=True))
    notes = [
        (split, index, f"{side}: {language}")
        for split, index, side, language in sure
        # a few in the other side's language are `swapped_sides`' to tell
        if language not in meant.values()
        or counts[split, side, language] > counts[split, side, meant[side]]
    ]
    advice = "remove these pairs; if they are most, data.source or data.target is wrong"
    yield Finding("language", "a side in another language", advice, lines_of(splits, notes))
