"""The toy language: German–English pairs of a synchronous grammar, with gold word alignments.

It needs no download and gives any number of pairs: tests and attention experiments use it.

* Tokens, words and punctuation alike, are separated by single spaces (`der Hund , der schläft , ist
  alt .`), and alignments speak of these tokens. Spelling is that of a dictionary: nouns, names and
  `I` have capitals, the first word of a sentence has none of its own.
* English is a function of the German. Where German could be read in two ways (`die Frau sieht das
  Kind`), the subject comes first; an object is fronted or relativised only where a form shows it.
* The splits differ in combinations of lemmas, not in lemmas. A combination is a verb with the noun
  of one of its arguments, or an adjective with its noun (see `syntax.combinations`). One in ten is
  held out, by a checksum of the two lemmas (`syntax.is_held_out`). No combination of a training
  pair is held out; in dev and test every combination is, and each pair has at least one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from translate.errors import UserError
from translate.extras.toy import english, german
from translate.extras.toy.sampler import SentenceSampler
from translate.extras.toy.syntax import Sentence, combinations

__all__ = ["ToyPair", "toy_pairs"]

PATIENCE = 1000  # draws in a row without a new pair, before the range counts as exhausted


@dataclass(frozen=True)
class ToyPair:
    """A German sentence, its English translation and the links between their whitespace tokens.

    `alignment` holds (source word index, target word index), sorted, from 0.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def toy_pairs(
    *, train: int, dev: int, test: int, min_words: int, max_words: int, seed: int
) -> dict[str, list[ToyPair]]:
    """The pairs of the splits `train`, `dev` and `test`, all different from each other.

    Lengths count source tokens, punctuation included, and spread over the whole range. The same
    arguments give the same pairs in any process and Python version; a larger `train` begins with
    the smaller one, and leaves `dev` and `test` as they are.

    Raises:
        UserError: an impossible range, or more pairs than the range can give.
    """
    if max_words < min_words:
        raise UserError(
            f"data.max_words {max_words} is less than data.min_words {min_words}: swap them"
        )
    counts = {"train": train, "dev": dev, "test": test}
    seen: set[str] = set()
    splits: dict[str, list[ToyPair]] = {}
    for split in ("test", "dev", "train"):  # train last: its size must not move the others
        sampler = SentenceSampler(f"{seed} {split}", held_out=split != "train")
        pairs = _distinct(sampler, min_words, max_words, seen, held_out=split != "train")
        splits[split] = [pair for _, pair in zip(range(counts[split]), pairs, strict=False)]
        drawn = len(splits[split])
        if drawn < counts[split]:
            raise UserError(
                f"data=toy found only {drawn:,} of {counts[split]:,} distinct {split} pairs of "
                f"{min_words} to {max_words} words: ask for fewer (data.{split}) or widen the "
                "range (data.min_words, data.max_words)"
            )
    return {split: splits[split] for split in counts}


def _distinct(
    sampler: SentenceSampler, min_words: int, max_words: int, seen: set[str], *, held_out: bool
) -> Iterator[ToyPair]:
    """New pairs within the range, until none has come for long; adds their sources to `seen`."""
    failures = 0
    lengths = max_words - min_words + 1
    while failures < PATIENCE:
        failures += 1
        tree = sampler.sentence(min_words + int(sampler.random() * lengths))
        pair = realise(tree)
        if not min_words <= pair.source.count(" ") + 1 <= max_words or pair.source in seen:
            continue
        if held_out and not combinations(tree):
            continue
        seen.add(pair.source)
        failures = 0
        yield pair


def realise(tree: Sentence) -> ToyPair:
    """Spell a tree out in both languages; words align where they share a link."""
    sides = german.sentence(tree), english.sentence(tree)
    alignment = tuple(
        (i, j)
        for i, source in enumerate(sides[0])
        for j, target in enumerate(sides[1])
        if not source.links.isdisjoint(target.links)
    )
    source_text, target_text = (" ".join(word.text for word in side) for side in sides)
    return ToyPair(source_text, target_text, alignment)
