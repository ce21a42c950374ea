"""Training pairs changed as people's text differs from a clean corpus: capitals, typos, signs.

The modifiers follow OpusTrainer (Bogoychev et al. 2023, arXiv 2311.14838). A pair of an epoch is
changed by one modifier at most, each with its share of the pairs. What is drawn depends on seed,
epoch, pair and occurrence alone, so that workers, batches and a resumed run see the same.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow
from jaxtyping import Float
from numpy.typing import NDArray

from translate.data.batching import Draws, mixed
from translate.data.pairs import Places, at
from translate.data.sources import Modifiers
from translate.data.tokenizer import Tokenizers

CLOSING = ".!?…。！？"  # punctuation that ends a sentence
OPENING = {"!": "¡", "?": "¿"}  # Spanish marks that go with it
DOUBLED = (".", "!", "!!", "!!!", "??", "?!", "...", "…", "..")
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # rows of a keyboard: neighbours are mistyped


class Texts(NamedTuple):
    """The two sides of a pair."""

    source: str
    target: str


# One modifier each. It returns the pair changed, or None where it cannot change this one.


def upper(pair: Texts, random: Random) -> Texts | None:
    """Write both sides in capitals."""
    return _changed(pair, Texts(pair.source.upper(), pair.target.upper()))


def title(pair: Texts, random: Random) -> Texts | None:
    """Begin every word with a capital."""
    source, target = (re.sub(r"(?<!\S)\w", _capital, side) for side in pair)
    return _changed(pair, Texts(source, target))


def _capital(match: re.Match[str]) -> str:
    return match[0].upper()


def lower(pair: Texts, random: Random) -> Texts | None:
    """Write the source in lower case; the target keeps its capitals."""
    return _changed(pair, pair._replace(source=pair.source.lower()))


def unpunctuated(pair: Texts, random: Random) -> Texts | None:
    """Leave out the mark at the end of both sides."""
    source, target = (_without_end(side) for side in pair)
    if source == pair.source or not source or not target:
        return None
    return Texts(source, target)


def doubled(pair: Texts, random: Random) -> Texts | None:
    """End both sides in the same other mark."""
    source, target = (_without_end(side) for side in pair)
    if source == pair.source or target == pair.target:
        return None
    end = random.choice(DOUBLED)
    return Texts(source + end, target + end)


def _without_end(text: str) -> str:
    """Return a text without its last mark, and without the Spanish one that opens it."""
    bare = text.rstrip(CLOSING + " ")
    mark = OPENING.get(text.rstrip()[-1:], "")
    place = bare.rfind(mark) if mark else -1
    return bare if place < 0 else bare[:place] + bare[place + 1 :]


def typos(pair: Texts, random: Random) -> Texts | None:
    """Put one or two slips into the source: letters swapped, left out, doubled or mistyped."""
    source = pair.source
    for _ in range(random.choice((1, 1, 2))):
        places = [match.start() for match in re.finditer(r"(?<=\w)\w(?=\w)", source)]
        if not places:
            break
        place = random.choice(places)
        here, following = source[place], source[place + 1]
        slip = random.choice((following + here, following, here + here + following,
                              _neighbour(here, random) + following))  # fmt: skip
        source = source[:place] + slip + source[place + 2 :]
    return _changed(pair, pair._replace(source=source))


def _neighbour(letter: str, random: Random) -> str:
    """Return a key beside the one that was meant."""
    for row in KEYS:
        if (place := row.find(letter)) >= 0:
            return random.choice(row[max(0, place - 1) : place] + row[place + 1 : place + 2])
    return letter


def signs(pair: Texts, random: Random) -> Texts | None:
    """Put a sign in the same place of both sides: around, in front, at the end, beside a word."""
    sign = _sign(random)
    anchors = [w for w in pair.source.split() if _once(w, pair.source) and _once(w, pair.target)]
    commas = all(side.count(", ") == 1 for side in pair)
    places = ["around", "front", "end", "mark", *["word"] * bool(anchors), *["comma"] * commas]
    match random.choice(places):
        case "around":
            opening, closing = random.choice(QUOTES)
            return Texts(*(f"{opening}{side}{closing}" for side in pair))
        case "front":
            return Texts(*(f"{sign} {side}" for side in pair))
        case "end":
            return Texts(*(f"{side} {sign}" for side in pair))
        case "mark":
            ends = (re.fullmatch(rf"(.*?)([{CLOSING}]*)", side) for side in pair)
            return Texts(*(f"{end[1]} {sign}{end[2]}" for end in ends if end))
        case "comma":
            dash = random.choice(DASHES)
            return Texts(*(side.replace(", ", f" {dash} ") for side in pair))
    word = random.choice(anchors)
    beside = random.choice((f"{sign} {word}", f"{word} {sign}"))
    return Texts(*(" ".join(beside if w == word else w for w in side.split()) for side in pair))


def _once(word: str, text: str) -> bool:
    return text.split().count(word) == 1


def names(pair: Texts, random: Random) -> Texts | None:
    """Replace a capitalised word that both sides have by a word that nobody knows."""
    words = [re.findall(r"\b[^\W\d_]\w+\b", side) for side in pair]
    common = sorted({word for word in words[0] if word[0].isupper()} & set(words[1]))
    if not common:
        return None
    name, new = random.choice(common), _name(random)
    return Texts(*(re.sub(rf"\b{re.escape(name)}\b", new, side) for side in pair))


def _changed(pair: Texts, modified: Texts) -> Texts | None:
    return None if modified == pair else modified


# Signs and words of all scripts

# first and last character of runs that people type, with how often each is drawn
RUNS = [
    ("😀", "🙏", 6), ("🌀", "🗿", 3), ("🚀", "🛒", 1), ("🤐", "🥶", 2), ("🦀", "🧿", 1),
    ("☀", "⛿", 2), ("✁", "➿", 2), ("←", "⇿", 2), ("∀", "⋿", 2), ("─", "◿", 1),
    ("₠", "⃀", 1), ("℀", "⅋", 1), ("¡", "¿", 3), ("‐", "⁞", 4), ("⁰", "₎", 1), ("♩", "♯", 2),
    ("À", "ſ", 3), ("Α", "ω", 1), ("А", "я", 2), ("א", "ת", 1), ("ء", "ي", 1), ("अ", "ह", 1),
    ("ก", "ฮ", 1), ("ぁ", "ヺ", 1), ("一", "龥", 2), ("가", "힣", 1),
]  # fmt: skip
SCRIPTS = [  # letters of words, with how often each is drawn
    ("abcdefghijklmnopqrstuvwxyz", 4), ("abcdefghijklmnoprstuvyzäöüßéèêáíóúñçğışžčřøåłńśź", 4),
    ("абвгдежзийклмнопрстуфхцчшыьэюя", 1), ("αβγδεζηθικλμνξοπρστυφχω", 1),
]  # fmt: skip
QUOTES = [*("«»", "‹›", "“”", "„“", "‘’", "()", "[]", '""'), ("¡", "!"), ("– ", ""), ("• ", "")]
DASHES = ("–", "—", "-", "…", ";", "/", "→")
VOWELS = "aeiouäöüéèêáíóúıøåаеиоуыэюяαεηιουω"


def _sign(random: Random) -> str:
    """Draw one to three times a character that is not of the plain Latin alphabet."""
    weights = [often for *_, often in RUNS]
    while True:
        first, last, _ = random.choices(RUNS, weights)[0]
        character = chr(random.randint(ord(first), ord(last)))
        if unicodedata.category(character)[0] in "LSPN":
            letters = character.isalpha()
            return character * random.choice((1, 2, 3) if letters else (1, 1, 1, 2, 3))


def _name(random: Random) -> str:
    """Draw a word of two to four syllables in one script, with a capital in front."""
    letters = random.choices(*zip(*SCRIPTS, strict=True))[0]
    vowels = [letter for letter in letters if letter in VOWELS]
    others = [letter for letter in letters if letter not in VOWELS]
    syllables = (
        random.choice(others) + random.choice(vowels) + random.choice(["", random.choice(others)])
        for _ in range(random.randint(2, 4))
    )
    return "".join(syllables).capitalize()


NAMES = tuple(Modifiers.model_fields)
Ids = NDArray[np.int32]
Modifier = Callable[[Texts, Random], Texts | None]
ALONE: Mapping[str, Modifier] = {  # those that need no other pair
    "upper": upper, "title": title, "lower": lower, "unpunctuated": unpunctuated,
    "doubled": doubled, "typos": typos, "signs": signs, "names": names,
}  # fmt: skip


@dataclass(frozen=True)
class Modified:
    """The training pairs that are changed, as text and as pieces.

    Args:
        table: the training pairs, corpora one after the other.
        parts: pairs of each corpus, and its tokenizers.
        max_length: a pair that would have more pieces on a side stays as it is.
    """

    modifiers: Modifiers
    table: pyarrow.Table
    parts: Sequence[tuple[int, Tokenizers]]
    max_length: int
    seed: int

    @cached_property
    def shares(self) -> list[float]:
        """The sums of the shares up to each modifier, in the order of the keys."""
        return list(accumulate(getattr(self.modifiers, name) for name in NAMES))

    def __bool__(self) -> bool:
        return self.shares[-1] > 0

    def numbers(self, pairs: Places, occurrences: Places, epoch: int) -> Float[np.ndarray, "pairs"]:
        """Return a number in [0, 1) for each pair of an epoch, by which its modifier is chosen."""
        key = np.random.default_rng((self.seed, epoch)).integers(2**64, dtype=np.uint64)
        places = pairs.astype(np.uint64) * np.uint64(1 << 16) + occurrences.astype(np.uint64)
        return mixed(mixed(places + key) + places) / 2.0**32

    def texts(self, epoch: int, pair: int, occurrence: int) -> tuple[str, Texts] | None:
        """Return the modifier of a pair and the pair as it changes it; None where it stays."""
        (number,) = self.numbers(np.array([pair]), np.array([occurrence]), epoch)
        return self._texts(number, epoch, pair, occurrence)

    def _texts(
        self, number: float, epoch: int, pair: int, occurrence: int
    ) -> tuple[str, Texts] | None:
        place = bisect_right(self.shares, number)
        if place == len(NAMES):
            return None
        name, random = NAMES[place], Random(f"{self.seed} {epoch} {pair} {occurrence}")
        change = ALONE.get(name, partial(self._merged, pair))
        modified = change(self._plain(pair), random)
        return modified and (name, modified)

    def examples(self, count: int) -> dict[str, list[tuple[Texts, Texts]]]:
        """Return the first pairs that each modifier changes, `count` each, before and after."""
        examples: dict[str, list[tuple[Texts, Texts]]] = {
            name: [] for name in NAMES if getattr(self.modifiers, name)
        }
        for pair in range(len(self.table)):
            if all(len(each) == count for each in examples.values()):
                break
            if changed := self.texts(0, pair, 0):
                name, texts = changed
                if len(examples[name]) < count:
                    examples[name].append((self._plain(pair), texts))
        return examples

    def pieces(
        self, pairs: Places, occurrences: Places, epoch: int
    ) -> Iterator[tuple[int, Ids, Ids]]:
        """Yield the places of the pairs of an epoch that change, with the pieces of both sides."""
        if not self:
            return
        numbers = self.numbers(pairs, occurrences, epoch)
        for place in np.flatnonzero(numbers < self.shares[-1]).tolist():
            pair = int(pairs[place])
            changed = self._texts(numbers[place], epoch, pair, int(occurrences[place]))
            if changed is not None:
                _, tokenizers = self.parts[self._part(pair)]
                source = tokenizers.source.encode(changed[1].source)
                target = tokenizers.target.encode(changed[1].target)
                if all(0 < len(side) <= self.max_length for side in (source, target)):
                    yield place, np.array(source, dtype=np.int32), np.array(target, dtype=np.int32)

    def replanned(self, drawn: Draws, epoch: int) -> Draws:
        """Return pairs of an epoch with the lengths, </s> included, that they have when changed."""
        lengths = drawn.source_lengths.copy(), drawn.target_lengths.copy()
        for place, *pieces in self.pieces(drawn.pairs, drawn.occurrences, epoch):
            for side, ids in zip(lengths, pieces, strict=True):
                side[place] = len(ids) + 1
        return drawn._replace(source_lengths=lengths[0], target_lengths=lengths[1])

    @cached_property
    def _borders(self) -> list[int]:
        return list(accumulate(pairs for pairs, _ in self.parts))

    def _part(self, pair: int) -> int:
        return bisect_right(self._borders, pair)

    def _plain(self, pair: int) -> Texts:
        return Texts(*(at(self.table, side, [pair])[0] for side in Texts._fields))

    def _merged(self, pair: int, plain: Texts, random: Random) -> Texts:
        """Put one or two other pairs of the same corpus behind a pair."""
        part = self._part(pair)
        first, size = self._borders[part] - self.parts[part][0], self.parts[part][0]
        others = [self._plain(first + random.randrange(size)) for _ in range(random.choice((1, 2)))]
        return Texts(*map(" ".join, zip(plain, *others, strict=True)))
