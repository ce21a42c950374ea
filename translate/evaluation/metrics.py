"""BLEU, chrF and TER, each with the sacreBLEU signature that reproduces it.

Hypotheses and references are detokenised text as a person would read it. An item may have any
number of references: `references[i]` lists those of item i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from translate.errors import UserError
from translate.wording import counted

if TYPE_CHECKING:  # at run time only where it is called, for the sake of start-up
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU


@dataclass(frozen=True)
class MetricName:
    """How a metric is shown; `sign` is 1 where more is better, else -1."""

    label: str
    sign: int


METRICS = {
    "bleu": MetricName("BLEU", 1),
    "chrf": MetricName("chrF", 1),
    "ter": MetricName("TER\N{NO-BREAK SPACE}↓", -1),
}

DEFAULT = "13a"  # BLEU's tokeniser of languages that part words by spaces
UNSPACED = ("zh", "ja-mecab", "char")  # BLEU's tokenisers of text without spaces


@dataclass(frozen=True)
class Score:
    """A corpus score in percent and the settings that reproduce it."""

    score: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """What is reported about one translated corpus; higher is better but for TER."""

    bleu: Score  # Papineni et al. 2002
    chrf: Score  # Popović 2015 (chrF2, character 6-grams)
    ter: Score  # Snover et al. 2006; lower is better

    def by_name(self) -> dict[str, Score]:
        """The scores by the names of METRICS, in that order."""
        return {name: getattr(self, name) for name in METRICS}


def evaluate(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> Scores:
    """Score a corpus; `tokenize` is BLEU's tokeniser (13a, zh, ja-mecab, char, flores200, …).

    Where it parts text that has no spaces, so does TER (`build_ter`).

    Raises:
        UserError: no items, unequal counts, an item without a reference, or a tokeniser that is
            unknown or not installed.
    """
    streams = reference_streams(hypotheses, references)
    return Scores(
        **{
            name: _score(metric, hypotheses, streams)
            for name, metric in build_metrics(tokenize).items()
        }
    )


def bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> float:
    """Corpus BLEU in percent alone, as validation watches it. Raises as `evaluate`."""
    return _score(build_bleu(tokenize), hypotheses, reference_streams(hypotheses, references)).score


def part_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> float | None:
    """BLEU of a part of a corpus; None where words match, but no hypothesis has four tokens.

    Such a part has no 4-grams, and BLEU is 0 of the best translations. Raises as `evaluate`.
    """
    streams = reference_streams(hypotheses, references)
    found = build_bleu(tokenize).corpus_score(hypotheses, streams)  # type: ignore[arg-type]  # as below
    return None if found.counts[0] and not found.totals[-1] else float(found.score)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus chrF2 in percent. Raises as `evaluate`."""
    from sacrebleu.metrics.chrf import CHRF

    return _score(CHRF(), hypotheses, reference_streams(hypotheses, references)).score


def cell(score: float | None, form: str = "z.1f") -> str:
    """A score in a table."""
    return "–" if score is None else format(score, form)


def build_metrics(tokenize: str) -> dict[str, Metric]:
    """sacreBLEU's metrics by our names, in the order of METRICS. Raises as `evaluate`."""
    from sacrebleu.metrics.chrf import CHRF

    return {"bleu": build_bleu(tokenize), "chrf": CHRF(), "ter": build_ter(tokenize)}


def build_ter(tokenize: str) -> Metric:
    """TER over words; over Chinese and Japanese characters where BLEU's tokeniser is of these.

    sacreBLEU parts Han characters and punctuation from the rest. Thai and its like stay whole.
    A long sentence is edited without shifts (`BoundedTER`).
    """
    from translate.evaluation.ter import BoundedTER

    return BoundedTER(unspaced=tokenize in UNSPACED)


def reference_streams(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[list[str | None]]:
    """Turn references by item into sacreBLEU's streams: the k-th holds every item's k-th reference.

    Items with fewer references than the richest are padded with None, which sacreBLEU leaves out of
    an item's set; an empty string it would count as a reference of length 0.

    Raises:
        UserError: unequal counts (sacreBLEU stops at the shorter side: 2 hypotheses against 1
            reference would score 100), no items, or an item without a reference.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{counted(len(hypotheses), 'hypothesis', 'hypotheses')} but references for "
            f"{counted(len(references), 'item')}: give one hypothesis for each item"
        )
    if not hypotheses:
        raise UserError("0 hypotheses and 0 references: there is nothing to score")
    bare = [number for number, item in enumerate(references, start=1) if not item]
    if bare:
        raise UserError(
            f"{len(bare)} of {len(references)} items have no reference (the first is item "
            f"{bare[0]}): give each item one reference or more"
        )
    return [list(stream) for stream in zip_longest(*references)]


def _score(
    metric: Metric, hypotheses: Sequence[str], streams: Sequence[Sequence[str | None]]
) -> Score:
    # sacreBLEU's annotation leaves out the None that its own documentation asks for as padding
    result = metric.corpus_score(hypotheses, streams)  # type: ignore[arg-type]
    return Score(float(result.score), str(metric.get_signature()))


def build_bleu(tokenize: str, *, effective_order: bool = False) -> BLEU:
    """BLEU; with `effective_order`, a sentence without any 4-gram is judged by what it has.

    Raises:
        UserError: the tokenizer is unknown or cannot be used here.
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(
            f"BLEU tokenizer {tokenize!r} is unknown: choose one of "
            f"{', '.join(sorted(BLEU.TOKENIZERS))}"
        )
    try:
        # no guess, in a log, at what was tokenised
        return BLEU(tokenize=tokenize, force=True, effective_order=effective_order)
    except (ImportError, RuntimeError, OSError) as error:  # some need a package, or a download
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error
