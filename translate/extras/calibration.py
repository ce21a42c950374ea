"""Confidence: learned from sentences with references, and judged on others.

`translate.inference.confidence` says what it is and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow
from jaxtyping import Float

from translate.data.pairs import in_order
from translate.errors import UserError
from translate.evaluation.metrics import sentence_chrf
from translate.inference.confidence import Confidence
from translate.inference.confidence import evidence as evidence_of
from translate.inference.translator import Translator

LEAST = 10  # sentences, of good ones and of others: two numbers are learned from them
BINS = 10
UNSURE = 0.01  # of the sentences that confidence is learned from
NO_EVIDENCE = (
    "probability does not distinguish good translations from others, so no confidence can be "
    "learned from it; choose another chrF (good=…), another search, or more sentences"
)
ROUNDS = 100  # Newton's method needs about ten


@dataclass(frozen=True)
class Judgement:
    """A judgement of confidence on sentences that it was not learned from.

    Attributes:
        sentences: their number.
        good: the share of good ones, and `expected`, the mean confidence: what it should be.
        calibration_error: how far the two are apart in a tenth of the sentences, on the mean over
            tenths of rising confidence (expected calibration error).
        brier: the mean squared distance from what was (1: good, 0: not), and `brier_of_share`, that
            of always saying the share of good ones.
        rank_correlation: Spearman's, of confidence with sentence chrF.
    """

    sentences: int
    good: float
    expected: float
    calibration_error: float
    brier: float
    brier_of_share: float
    rank_correlation: float


def calibrate(
    model: Translator,
    dev: pyarrow.Table,
    test: pyarrow.Table,
    *,
    good: float,
    weights_sha256: str,
    search: Mapping[str, Any],
) -> tuple[Confidence, Judgement]:
    """Learn confidence on dev sentences, and judge it on test sentences."""
    evidence, chrf = _translated(model, dev)
    slope, intercept = learn(evidence, [score >= good for score in chrf])
    learned = Confidence(
        slope=slope, intercept=intercept, good=good, weights_sha256=weights_sha256,
        search=dict(search), judged={},
    )  # fmt: skip
    unsure = float(np.quantile([learned(each) for each in evidence], UNSURE))
    learned = learned.model_copy(update={"unsure": unsure})
    evidence, chrf = _translated(model, test)
    judgement = judge([learned(each) for each in evidence], chrf, good=good)
    return learned.model_copy(update={"judged": asdict(judgement)}), judgement


def _translated(model: Translator, split: pyarrow.Table) -> tuple[list[float], list[float]]:
    """Return the evidence of every translation, and its sentence chrF."""
    translations = [best for best, *_ in model.stream(in_order(split, "source"))]
    references = list(in_order(split, "references"))
    chrf = sentence_chrf([best.text for best in translations], references)
    return [evidence_of(best.log_prob, len(best.tokens)) for best in translations], chrf


def learn(evidence: Sequence[float], good: Sequence[bool]) -> tuple[float, float]:
    """Fit slope and intercept of the likeliest logistic curve (Platt 1999, section 2.2).

    Its targets are the shares of good and of other sentences with one more of each kind, not 1 and
    0, so that the curve stays finite where the two can be told apart without fail.

    Raises:
        UserError: too few sentences of a kind, or the evidence does not tell good from bad.
    """
    hits, misses = sum(good), len(good) - sum(good)
    if min(hits, misses) < LEAST:
        raise UserError(
            f"{hits} of {len(good)} translations are good: learning confidence takes at least "
            f"{LEAST} good ones and {LEAST} others; choose another chrF (good=…) or more sentences"
        )
    values = np.array(evidence)
    if np.ptp(values) == 0:
        raise UserError(f"all translations are equally probable ({values[0]:.4g}): {NO_EVIDENCE}")
    centre, spread = values.mean(), values.std()  # steps are bounded: units must not count
    x = np.stack([(values - centre) / spread, np.ones(len(values))], axis=1)  # (N, 2)
    target = np.where(good, (hits + 1) / (hits + 2), 1 / (misses + 2))
    weights = np.zeros(2)
    for _ in range(ROUNDS):
        p = 1 / (1 + np.exp(-x @ weights))
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x, x.T @ (target - p))
        weights = weights + step / max(1.0, float(np.abs(step).max()))  # from afar, small steps
        if np.abs(step).max() < 1e-10:
            break
    slope = float(weights[0] / spread)
    if slope < 0:
        raise UserError(f"less probable translations are better (slope {slope:.3g}): {NO_EVIDENCE}")
    return slope, float(weights[1] - slope * centre)


def judge(confidence: Sequence[float], chrf: Sequence[float], *, good: float) -> Judgement:
    """Compare confidence with the chrF of its sentences; from `good` on a sentence is good."""
    chances, scores = np.array(confidence), np.array(chrf)
    hits = (scores >= good).astype(float)
    # equally sure sentences may fall into two tenths: by their mean it does not matter which where
    _, tied, count = np.unique(chances, return_inverse=True, return_counts=True)
    share = (np.bincount(tied, hits) / count)[tied]
    tenths = np.array_split(np.argsort(chances, kind="stable"), BINS)
    gaps = [
        len(tenth) * abs(chances[tenth].mean() - share[tenth].mean())
        for tenth in tenths
        if len(tenth)
    ]
    ranks = np.stack([_ranks(chances), _ranks(scores)])
    constant = (ranks.std(axis=1) == 0).any()
    return Judgement(
        sentences=len(chances),
        good=float(hits.mean()),
        expected=float(chances.mean()),
        calibration_error=float(sum(gaps) / len(chances)),
        brier=float(((chances - hits) ** 2).mean()),
        brier_of_share=float(hits.var()),
        rank_correlation=0.0 if constant else float(np.corrcoef(ranks)[0, 1]),
    )


def _ranks(values: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Rank each value, from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Float[np.ndarray, "N"] = (last - (counts - 1) / 2)[inverse]
    return ranks
