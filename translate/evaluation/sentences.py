"""Sentence by sentence: scores, who translates which better, and the words that differ."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from translate.evaluation.metrics import DEFAULT, build_bleu, build_ter, reference_streams
from translate.evaluation.words import words

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

EQUAL = 1e-6  # points of chrF within which two sentences are a tie
MARKED = 500  # words of a text; the time to compare two grows with the square


@dataclass(frozen=True)
class SentenceScores:
    """One hypothesis against its references, in percent; a sentence alone says little by BLEU."""

    bleu: float  # over the n-gram orders that the sentence has (sacreBLEU's effective order)
    chrf: float
    ter: float


class Record(NamedTuple):
    """How many sentences a system translates better, worse and alike, by chrF."""

    wins: int
    losses: int
    ties: int


class Word(NamedTuple):
    """A word or the space before one, and whether the other text has it at this place too."""

    text: str
    shared: bool


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> list[SentenceScores]:
    """The scores of each sentence by itself.

    Raises as `metrics.evaluate`.
    """
    chrf = sentence_chrf(hypotheses, references)  # refuses what cannot be scored
    bleu, ter = (
        _each(metric, hypotheses, references)
        for metric in (build_bleu(tokenize, effective_order=True), build_ter(tokenize))
    )
    return list(map(SentenceScores, bleu, chrf, ter))


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """The chrF of each sentence by itself.

    Raises as `metrics.evaluate`.
    """
    from sacrebleu.metrics.chrf import CHRF

    reference_streams(hypotheses, references)  # refuses what cannot be scored
    return _each(CHRF(), hypotheses, references)


def _each(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[float]:
    return [
        float(metric.sentence_score(text, list(item)).score)
        for text, item in zip(hypotheses, references, strict=True)
    ]


def record(baseline: Sequence[SentenceScores], system: Sequence[SentenceScores]) -> Record:
    """Count the sentences on which the system beats the baseline."""
    gains = [new.chrf - old.chrf for old, new in zip(baseline, system, strict=True)]
    wins = sum(gain > EQUAL for gain in gains)
    losses = sum(gain < -EQUAL for gain in gains)
    return Record(wins, losses, len(gains) - wins - losses)


def word_diff(first: str, second: str) -> tuple[list[Word], list[Word]]:
    """The words of two texts (see `words`), marked where both have them in the same order.

    After the first `MARKED` words nothing is looked at, and all count as shared.
    """
    left, right = words(first), words(second)
    matched = SequenceMatcher(
        None, left[:MARKED], right[:MARKED], autojunk=False
    ).get_matching_blocks()
    shared_left = {block.a + i for block in matched for i in range(block.size)}
    shared_right = {block.b + i for block in matched for i in range(block.size)}
    return _spaced(first, left, shared_left), _spaced(second, right, shared_right)


def _spaced(text: str, found: Sequence[str], shared: Set[int]) -> list[Word]:
    """The words of a text and the spaces between them, which are never marked."""
    spaced: list[Word] = []
    end = 0
    for i, word in enumerate(found):
        start = text.index(word, end)
        if i and start > end:
            spaced.append(Word(" ", True))
        end = start + len(word)
        spaced.append(Word(word, i in shared or i >= MARKED))
    return spaced
