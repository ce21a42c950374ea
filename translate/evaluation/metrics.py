"""BLEU, chrF and TER, each with the sacreBLEU signature that reproduces it.

Hypotheses and references are detokenised text as a person would read it. An item may have any
number of references: `references[i]` lists those of item i.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER, TERScore
from sacrebleu.significance import estimate_ci

from translate.data.plain_text import mostly_unspaced
from translate.errors import UserError
from translate.wording import counted

log = logging.getLogger(__name__)

DEFAULT = "13a"  # BLEU's tokeniser of languages that separate words by spaces
UNSPACED = ("zh", "ja-mecab", "char")  # BLEU's tokenisers of text without spaces
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # by language, as in sacreBLEU
LANGUAGES = {
    **dict.fromkeys(["zho", "chi", "cmn", "cn", "chinese"], "zh"),
    **dict.fromkeys(["jpn", "jp", "japanese"], "ja"),
    **dict.fromkeys(["kor", "korean"], "ko"),
}
LONGEST = 250  # words of a sentence in which TER looks for shifts
# resamples: of n the lowest probability is 1 / (n + 1), and it has to be below 5 %
ENOUGH = 20


@dataclass(frozen=True)
class MetricName:
    """The name that a metric is shown by; `sign` is 1 where more is better, else -1."""

    label: str
    sign: int


METRICS = {
    "bleu": MetricName("BLEU", 1),
    "chrf": MetricName("chrF", 1),
    "ter": MetricName("TER\N{NO-BREAK SPACE}↓", -1),
}


@dataclass(frozen=True)
class MetricScore:
    """A corpus score in percent and the settings that reproduce it."""

    score: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """The scores of one translated corpus; higher is better except for TER."""

    bleu: MetricScore  # Papineni et al. 2002
    chrf: MetricScore  # Popović 2015 (chrF2, character 6-grams)
    ter: MetricScore  # Snover et al. 2006; lower is better

    def by_name(self) -> dict[str, MetricScore]:
        """The scores by the names of METRICS, in that order."""
        return {name: getattr(self, name) for name in METRICS}


@dataclass(frozen=True)
class SentenceScores:
    """One hypothesis against its references, in percent; a sentence alone says little by BLEU."""

    bleu: float  # over the n-gram orders that the sentence has (sacreBLEU's effective order)
    chrf: float
    ter: float


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of a score over resamples of the test set: mean ± half_width."""

    mean: float
    half_width: float
    signature: str  # with the number of resamples and the seed


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> Scores:
    """MetricScore a corpus; `tokenize` is BLEU's tokeniser (13a, zh, ja-mecab, char, flores200, …).

    With a tokeniser of text without spaces, TER separates characters too (`build_ter`).

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
    """Corpus BLEU in percent alone, as validation watches it. Raises as `corpus_scores`."""
    return _score(build_bleu(tokenize), hypotheses, reference_streams(hypotheses, references)).score


def part_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> float | None:
    """BLEU of a part of a corpus; None where words match, but no hypothesis has four tokens.

    Such a part has no 4-grams, and BLEU is 0 of the best translations. Raises as `corpus_scores`.
    """
    streams = reference_streams(hypotheses, references)
    result = build_bleu(tokenize).corpus_score(hypotheses, streams)  # type: ignore[arg-type]  # as below
    return None if result.counts[0] and not result.totals[-1] else float(result.score)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus chrF2 in percent. Raises as `corpus_scores`."""
    return _score(CHRF(), hypotheses, reference_streams(hypotheses, references)).score


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = DEFAULT
) -> list[SentenceScores]:
    """The scores of each sentence by itself. Raises as `corpus_scores`."""
    chrf = sentence_chrf(hypotheses, references)  # refuses what cannot be scored
    bleu, ter = (
        _of_each(metric, hypotheses, references)
        for metric in (build_bleu(tokenize, effective_order=True), build_ter(tokenize))
    )
    return list(map(SentenceScores, bleu, chrf, ter))


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """The chrF of each sentence by itself. Raises as `corpus_scores`."""
    reference_streams(hypotheses, references)  # refuses what cannot be scored
    return _of_each(CHRF(), hypotheses, references)


def build_metrics(tokenize: str) -> dict[str, Metric]:
    """sacreBLEU's metrics by our names, in the order of METRICS. Raises as `corpus_scores`."""
    return {"bleu": build_bleu(tokenize), "chrf": CHRF(), "ter": build_ter(tokenize)}


def build_bleu(tokenize: str, *, effective_order: bool = False) -> BLEU:
    """BLEU; with `effective_order`, a sentence without any 4-gram is judged by what it has.

    Raises:
        UserError: the tokenizer is unknown or cannot be used here.
    """
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


def build_ter(tokenize: str) -> Metric:
    """TER over words; over Chinese and Japanese characters where BLEU's tokeniser is of these.

    sacreBLEU separates Han characters and punctuation from the rest. Thai and its like stay whole.
    """
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
) -> MetricScore:
    # sacreBLEU's annotation leaves out the None that its own documentation asks for as padding
    result = metric.corpus_score(hypotheses, streams)  # type: ignore[arg-type]
    return MetricScore(float(result.score), str(metric.get_signature()))


def _of_each(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[float]:
    return [
        float(metric.sentence_score(text, list(item)).score)
        for text, item in zip(hypotheses, references, strict=True)
    ]


def intervals(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    resamples: int,
    seed: int,
    tokenize: str = DEFAULT,
) -> dict[str, Interval]:
    """The confidence interval of each metric, by name. Raises as `corpus_scores`.

    The resamples are those of sacreBLEU's `PairedTest`, made one after another: all at once they
    take 80 kB a sentence for a thousand.
    """
    by_metric: dict[str, Interval] = {}
    for name, metric in build_metrics(tokenize).items():
        statistics = item_statistics(metric, hypotheses, references)
        rng, items = np.random.default_rng(seed), len(statistics)
        draws = (
            np.bincount(rng.choice(items, items), minlength=items).astype(float)
            for _ in range(resamples)
        )
        mean, half_width = estimate_ci(
            np.array([score_of_sum(metric, d @ statistics) for d in draws])
        )
        signature = metric.get_signature()
        signature.update("seed", str(seed))
        signature.update("bs", resamples)
        by_metric[name] = Interval(float(mean), float(half_width), str(signature))
    return by_metric


def item_statistics(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Float[np.ndarray, "N K"]:
    """sacreBLEU's counts of each item; a corpus has the score of their sum."""
    streams = reference_streams(hypotheses, references)
    return np.array(metric._extract_corpus_statistics(hypotheses, streams), dtype=float)  # type: ignore[arg-type]


def score_of_sum(metric: Metric, total: Float[np.ndarray, "K"]) -> float:
    """Return the score of summed counts."""
    return float(metric._compute_score_from_stats(total.tolist()).score)


def choose_tokenizer(
    tokenize: str | None, language: str, references: Iterable[Sequence[str]]
) -> str:
    """BLEU's tokeniser: the one that is named, else that of the target language.

    The language is free text; `zh-TW`, `zho_Hans` and `Chinese` are recognised. Where a language is
    not, and the references have no spaces, BLEU counts characters: with 13a a sentence would be one
    word, and nearly right translations would score 0.

    Raises:
        UserError: the one that is named is unknown or not installed.
    """
    if tokenize is not None:
        build_bleu(tokenize)
        return tokenize
    code = re.split(r"[\W_]", language.strip().lower())[0]
    by_language = TOKENIZERS.get(LANGUAGES.get(code, code))
    if by_language is not None:
        try:
            build_bleu(by_language)
        except UserError as error:
            log.warning("BLEU counts characters (tokenize=char): %s", error)
            return "char"
        return by_language
    if mostly_unspaced("".join(chain.from_iterable(references))):
        log.warning(
            "BLEU counts characters (tokenize=char): the references are in a script "
            "without spaces, and the language %r has no tokenizer of its own, unlike "
            "zh, ja and ko", language,
        )  # fmt: skip
        return "char"
    return DEFAULT


class BoundedTER(TER):
    """sacreBLEU's TER; a sentence of more than `LONGEST` words is edited without shifts.

    sacreBLEU's search for shifts takes about 6 s of a core for two random sentences of 250 words,
    and more than 40 s for 500. Without shifts the figure is never less than TER; the signature
    then says so.
    """

    def __init__(self, *, unspaced: bool) -> None:
        """Make TER over words or, if `unspaced`, over Chinese and Japanese characters."""
        super().__init__(normalized=unspaced, asian_support=unspaced)
        self.without_shifts = 0  # sentences

    def get_signature(self) -> Signature:
        """sacreBLEU's, with the length up to which shifts were looked for."""
        signature = super().get_signature()
        if self.without_shifts:
            signature.update("shifts", f"≤{LONGEST}words")
        return signature

    def corpus_score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]] | None,
        n_bootstrap: int = 1,
    ) -> TERScore:
        """sacreBLEU's, with a warning where sentences are too long for it."""
        score: TERScore = super().corpus_score(hypotheses, references, n_bootstrap)
        if self.without_shifts:
            log.warning(
                "TER counts no shifts in %d of %d "
                "sentences, which have more than "
                "%d words: searching for shifts "
                "would take minutes", self.without_shifts, len(hypotheses), LONGEST,
            )  # fmt: skip
        return score

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, Any]
    ) -> list[float]:
        """The fewest edits to any of the references, and the mean length of these."""
        words, references = hypothesis.split(), ref_kwargs["ref_words"]
        if max(map(len, (words, *references))) <= LONGEST:
            return [*_with_shifts(hypothesis, tuple(map(tuple, references)))]
        self.without_shifts += 1
        return [min(edits(words, other) for other in references), fmean(map(len, references))]


@lru_cache(maxsize=1 << 16)  # a score, its interval and those of the sentences ask for the same
def _with_shifts(hypothesis: str, references: tuple[tuple[str, ...], ...]) -> tuple[float, ...]:
    """sacreBLEU's own counts."""
    arguments = {"ref_words": [list(words) for words in references]}
    return tuple(TER()._compute_segment_statistics(hypothesis, arguments))


def edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Words to leave out, put in or replace (Levenshtein), looked for along the diagonal.

    Never fewer than need be, and exactly so many where no word's place moves by more than LONGEST.
    The time grows with the longer text alone.
    """
    short, long = sorted((first, second), key=len)
    numbers = {word: number for number, word in enumerate(dict.fromkeys(short))}
    across = np.array([numbers[word] for word in short], dtype=np.int64)
    places = np.arange(len(short) + 1)
    row = np.where(places <= LONGEST, places, len(short) + len(long))
    for number, word in enumerate(long, start=1):
        middle = number * len(short) // len(long)
        low, high = max(0, middle - LONGEST), min(len(short), middle + LONGEST)
        above, steps = row[low : high + 1], places[: high + 1 - low]
        fewest = above + 1  # the word left out
        replaced = above[:-1] + (across[low:high] != numbers.get(word, -1))
        np.minimum(fewest[1:], replaced, out=fewest[1:])
        # words put in: D[j] = min over k <= j of D[k] + j - k
        row[low : high + 1] = np.minimum.accumulate(fewest - steps) + steps
    return int(row[-1])
