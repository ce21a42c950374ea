"""Checks of parallel text: empty and odd sides, characters, repetitions, languages."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from random import Random
from statistics import median

import numpy as np

from translate.data.pairs import Lines, Pair, Unreadable
from translate.data.plain_text import INVISIBLE, has_text, normalise, sameness
from translate.wording import UNSEEN, escaped, install

Splits = Mapping[str, Sequence[Pair]]  # by name, each as it was read
WIDTH = 100  # characters of a sentence shown
UNSHOWN = (*UNSEEN, "Cf", "Cn", "Co")  # Unicode's formats, unassigned and private characters
JOINERS = "\u200c\u200d"  # of Persian letters and of emoji
FAR = 7.0  # standard deviations of length beyond which a pair is an outlier
NARROWEST = 0.25  # of δ: the text of a template hardly varies, which makes nothing an outlier
FEWEST_LENGTHS = 50  # pairs, to know what is usual
# Bytes of UTF-8 read as Windows-1252: a first byte Ã, â, Ð …, then its continuation bytes' letters.
# â€™ is one sign, while amanhã” is a word and a quote.
CONTINUATION = "[\u0080-\u00bf\u0152-\u0178\u02c6\u02dc\u2013-\u2122]"
MOJIBAKE = re.compile(
    f"[\u00c2-\u00df]{CONTINUATION}|[\u00e0-\u00ef]{CONTINUATION}{{2}}|[\u00f0-\u00f4]{CONTINUATION}{{3}}"
)
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&(?:#\d+|[a-zA-Z]{2,8});")
SPELLING = "\u180e\u200c\u200d"  # of Mongolian, Persian and emoji, though not to be seen
STRAY = re.compile(f"(?![{SPELLING}]){INVISIBLE.pattern}")
ALIKE = ("LATIN", "CYRILLIC", "GREEK")  # scripts whose letters look alike
WORD = re.compile(r"\w+")
SHINGLE = 5  # characters
NEAR = 0.85  # Jaccard similarity of the shingles of two pairs
Shingles = frozenset[str]
log = logging.getLogger(__name__)
GRAM = 3  # characters
LEARNED = 20_000  # training pairs to learn the two languages from …
USUAL = 2_000  # … and of these at most, to know the usual sentence of each by
FEWEST_SENTENCES = 100  # pairs, to tell the languages apart by
SHORTEST = 20  # characters of a side that is judged
LIKE_THE_OTHER = 0.4  # of the way to the other language's usual sentence
SURE = 0.9  # probability of another language
LONG = 50  # characters from which on another language is told
WHICH = {
    (True, True): "the sides are swapped",
    (True, False): "the source looks like the target language",
    (False, True): "the target looks like the source language",
}


@dataclass(frozen=True)
class Line:
    """A line of a split's file, from 1, with its text and why it is named."""

    split: str
    number: int
    source: str
    target: str
    note: str


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `check` names it for programs, `title` for people."""

    check: str
    title: str
    advice: str
    lines: Sequence[Line]


def sides(splits: Splits) -> Iterator[tuple[str, int, str, str]]:
    """Every sentence as split, index from 0, side and text."""
    for split, pairs in splits.items():
        for index, pair in enumerate(pairs):
            yield split, index, "source", pair.source
            yield split, index, "target", pair.target


def drawn(pairs: Sequence[Pair], most: int, *, seed: int = 1) -> list[int]:
    """The indices of at most so many pairs, rising; a file may have one domain after the other."""
    return sorted(Random(seed).sample(range(len(pairs)), min(most, len(pairs))))


def number_of(pairs: Sequence[Pair], index: int) -> int:
    """The line, from 1, that the pair with this index from 0 stands on."""
    return index + (pairs.first if isinstance(pairs, Lines) else 1)


def lines_of(splits: Splits, notes: Iterable[tuple[str, int, str]]) -> list[Line]:
    """Lines from (split, index from 0, note)."""
    return [
        Line(split, number_of(pairs, index), pairs[index].source, pairs[index].target, note)
        for split, index, note in notes
        for pairs in [splits[split]]
    ]


def report(findings: Sequence[Finding], *, lines: int) -> Iterator[str]:
    """Yield the findings line by line, each with at most `lines` of the lines it names."""
    if not findings:
        yield "nothing suspicious was found"
    for finding in findings:
        yield f"{headline(finding)}: {finding.advice}"
        for line in finding.lines[:lines]:
            yield f"  {line.split} line {line.number}  {line.note}"
            yield f"    {_cut(line.source)}"
            yield f"    {_cut(line.target)}"
        if lines and len(finding.lines) > lines:
            yield f"  … and {len(finding.lines) - lines:,} more (json=FILE lists all)"


def headline(finding: Finding) -> str:
    """Name the mistake and how often it occurs, by split."""
    counts = Counter(line.split for line in finding.lines)
    places = ", ".join(f"{split} {count:,}" for split, count in counts.items())
    return f"{finding.title} ({places})"


def _cut(text: str) -> str:
    shown = escaped(text, UNSHOWN, kept=JOINERS)
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"


def unreadable(splits: Splits) -> Iterator[Finding]:
    """Find the rows of tables that may mean several things, or nothing."""
    notes = [
        (split, index, pair.reason)
        for split, pairs in splits.items()
        for index, pair in enumerate(pairs)
        if isinstance(pair, Unreadable)
    ]
    advice = "they are left out: mend them in the table, or write it again with another program"
    yield Finding("unreadable", "rows that cannot be read", advice, lines_of(splits, notes))


def without_unreadable(splits: Splits) -> Splits:
    """Return the splits with an empty pair in place of each row that cannot be read."""
    return {
        split: Lines(
            (Pair("", "") if isinstance(pair, Unreadable) else pair for pair in pairs),
            first=number_of(pairs, 0),
        )
        for split, pairs in splits.items()
    }


def empty(splits: Splits) -> Iterator[Finding]:
    """Lines without a visible character on one side or both."""
    notes = [
        (split, index, "both sides" if not any(seen) else "target" if seen[0] else "source")
        for split, pairs in splits.items()
        for index, pair in enumerate(pairs)
        if not all(seen := (has_text(pair.source), has_text(pair.target)))
    ]
    advice = "cleaning drops such training pairs; in dev and test, find the missing text"
    yield Finding("empty", "an empty side", advice, lines_of(splits, notes))


def outliers(splits: Splits) -> Iterator[Finding]:
    """Pairs whose lengths do not fit (Gale & Church 1993).

    δ = (l_t - c·l_s) / √(l_s·s²) is about normal for translations; c and s² are the corpus' own, by
    median and median absolute deviation, so that outliers do not hide themselves.
    """
    places = [(split, index) for split, pairs in splits.items() for index in range(len(pairs))]
    lengths = np.array(
        [(len(p.source), len(p.target)) for pairs in splits.values() for p in pairs], dtype=float
    ).reshape(-1, 2)
    known = lengths.min(axis=1) > 0
    notes = []
    if known.sum() >= FEWEST_LENGTHS:
        source, target = lengths[known].T
        c = np.median(target / source)
        delta = (target - c * source) / np.sqrt(source + 10)  # + 10: short ones vary more
        spread = max(NARROWEST, 1.4826 * float(np.median(np.abs(delta))))
        scores = np.zeros(len(lengths))
        scores[known] = delta / spread
        notes = [
            (*places[i], f"{lengths[i, 0]:.0f} to {lengths[i, 1]:.0f} characters")
            for i in np.nonzero(np.abs(scores) > FAR)[0]
        ]
    advice = "look whether text is missing; data.cleaning.length_ratio drops the worst of them"
    yield Finding("length", "lengths that do not fit", advice, lines_of(splits, notes))


def anomalies(splits: Splits) -> Iterator[Finding]:
    """Lines with a character that is most likely a mistake, and which."""
    notes = [
        (split, index, f"{side}: {strange}")
        for split, index, side, text in sides(splits)
        if (strange := anomaly(text))
    ]
    advice = "fix the files, or replace the characters with data.cleaning.replace"
    yield Finding("characters", "strange characters", advice, lines_of(splits, notes))


def quoted(splits: Splits) -> Iterator[Finding]:
    """Sentences in quotation marks where most of their side are, as cells of a table may be."""
    quotes = [
        (split, index, side)
        for split, index, side, text in sides(splits)
        if len(text) > 1 and text[0] == text[-1] == '"'
    ]
    often = Counter((split, side) for split, _, side in quotes)
    notes = [
        (split, index, f"{side}: in quotation marks")
        for split, index, side in quotes
        if often[split, side] > len(splits[split]) / 2
    ]
    advice = "table cells are read literally: write the table without quotation marks"
    yield Finding("quoted", "sentences in quotation marks", advice, lines_of(splits, notes))


def anomaly(text: str) -> str:
    """Name the strange character of a text; an empty text if there is none."""
    if text.isascii() and text.isprintable() and "<" not in text and "&" not in text:
        return ""  # most lines of most corpora
    for kind, strange in (
        ("not decoded (U+FFFD)", "\ufffd" if "\ufffd" in text else ""),
        ("old Mac line ending, which does not end a line here", "\r" if "\r" in text else ""),
        ("control character", next(filter(_is_control, text), "")),
        ("invisible character", _match(STRAY, text)),
        ("UTF-8 decoded as another encoding", _match(MOJIBAKE, text)),
        ("mark-up", _match(MARKUP, text)),
        ("scripts mixed in a word", next(filter(_mixes, WORD.findall(text)), "")),
    ):
        if strange:
            return f"{kind}: {strange!r}" if strange.isprintable() else f"{kind}: {strange!a}"
    return ""


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Co") and character != "\t"


def _match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[0] if match else ""


def _mixes(word: str) -> bool:
    """Tell whether letters that look alike are of different scripts, as a Cyrillic а in `bаnk`."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(c, "").split(" ")[0] for c in word if c.isalpha()}
    return len(scripts.intersection(ALIKE)) > 1


def duplicates(splits: Splits) -> Iterator[Finding]:
    """Find pairs that stand in a split again, by what `sameness` compares."""
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
    if {"dev", "test"} <= splits.keys():
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
    frequency = Counter(shingle for _, grams in held_out for shingle in grams)
    index: defaultdict[str, list[int]] = defaultdict(list)
    for number, (_, grams) in enumerate(held_out):
        for shingle in _prefix(grams, frequency):
            index[shingle].append(number)
    literal = {(sameness(p.source), sameness(p.target)) for _, p in _held_out(splits)}
    notes = []
    for line, pair in enumerate(splits["train"]):
        if (sameness(pair.source), sameness(pair.target)) in literal:
            continue
        grams = shingles(pair)
        candidates = {n for shingle in _prefix(grams, frequency) for n in index.get(shingle, ())}
        alike = [(jaccard(grams, held_out[n][1]), held_out[n][0]) for n in candidates]
        similarity, place = max(alike, default=(0, ""))
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


def _prefix(grams: Shingles, frequency: Mapping[str, int]) -> list[str]:
    """The rarest elements, one of which any set that is similar enough must share."""
    order = sorted(grams, key=lambda shingle: (frequency.get(shingle, 0), shingle))
    return order[: len(order) - math.ceil(NEAR * len(order)) + 1]


def _held_out(splits: Splits) -> list[tuple[str, Pair]]:
    """The pairs of all other splits with where they stand."""
    return [
        (f"{split} line {number_of(pairs, index)}", pair)
        for split, pairs in splits.items()
        if split != "train"
        for index, pair in enumerate(pairs)
    ]


def copies(splits: Splits) -> Iterator[Finding]:
    """Find pairs of one sentence twice, by what `sameness` compares; empty ones do not count."""
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
    if len(train) < FEWEST_SENTENCES:
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
