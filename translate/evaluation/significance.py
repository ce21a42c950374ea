"""How sure a score is, and how sure a difference between two: sacreBLEU's own resampling.

Bootstrap: Koehn 2004. Approximate randomisation: Riezler & Maxwell 2005. Both tests are paired
and two-sided, and ask how often two systems that are equally good would differ by so much.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any

import numpy as np

from translate.evaluation.metrics import METRICS, build_metrics, reference_streams

if TYPE_CHECKING:
    from sacrebleu.significance import PairedTest

SURE = 0.05  # a p-value below is called a real difference


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of a score over resamples of the test set: mean ± half_width."""

    mean: float
    half_width: float
    signature: str  # with the number of resamples and the seed

    def as_dict(self) -> dict[str, float | str]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """One metric of a system beside the baseline's; `gain` is positive where it is better."""

    baseline: float
    score: float
    gain: float
    bootstrap: float  # p-values
    randomisation: float

    @property
    def real(self) -> bool:
        """Whether both tests find it too large for chance."""
        return max(self.bootstrap, self.randomisation) < SURE

    def as_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        return asdict(self)


def intervals(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    resamples: int,
    seed: int,
    tokenize: str = "13a",
) -> dict[str, Interval]:
    """The confidence interval of each metric, by name. Raises as `metrics.evaluate`."""
    paired = _paired({"": hypotheses}, references, "bs", resamples, seed, tokenize)
    signatures, results = paired()
    found: dict[str, Interval] = {}
    for name, theirs in zip(METRICS, paired.metrics, strict=True):
        (alone,) = results[theirs]
        found[name] = Interval(float(alone.mean), float(alone.ci), str(signatures[theirs]))  # type: ignore[union-attr, arg-type]
    return found


def differences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    resamples: int,
    trials: int,
    seed: int,
    tokenize: str = "13a",
) -> dict[str, dict[str, Difference]]:
    """Test every system against the first, the baseline: system → metric → difference.

    Args:
        systems: name → hypotheses, in the order of the references.
        references: of each item.
        resamples: of the paired bootstrap.
        trials: of the approximate randomisation.
        seed: of both, from 1: sacreBLEU takes 0 for none.
        tokenize: BLEU's tokeniser.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for test, samples in (("bs", resamples), ("ar", trials)):
        paired = _paired(systems, references, test, samples, seed, tokenize)
        _, results = paired()
        found[test] = {
            metric: results[theirs] for metric, theirs in zip(METRICS, paired.metrics, strict=True)
        }
    return {
        system: {
            metric: _difference(
                METRICS[metric].sign,
                baseline=found["bs"][metric][0].score,
                score=found["bs"][metric][number].score,
                bootstrap=found["bs"][metric][number].p_value,
                randomisation=found["ar"][metric][number].p_value,
            )
            for metric in METRICS
        }
        for number, system in enumerate(systems)
        if number
    }


def _paired(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    test: str,
    samples: int,
    seed: int,
    tokenize: str,
) -> PairedTest:
    """sacreBLEU's test, which reads its seed from the environment when it is made.

    Its `metrics` are under names of its own (chrF2), in our order.
    """
    from sacrebleu.significance import PairedTest

    for hypotheses in systems.values():
        streams = reference_streams(hypotheses, references)
    with _seeded(seed):
        return PairedTest(
            [(name, list(hypotheses)) for name, hypotheses in systems.items()],
            build_metrics(tokenize),
            streams,  # type: ignore[arg-type]
            test_type=test,
            n_samples=samples,
        )


def _difference(
    sign: int, *, baseline: float, score: float, bootstrap: float, randomisation: float
) -> Difference:
    """Equal scores are no difference; sacreBLEU counts larger ones, and would find p near 0."""
    if score == baseline:
        return Difference(baseline, score, 0.0, 1.0, 1.0)
    return Difference(baseline, score, sign * (score - baseline), bootstrap, randomisation)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """sacreBLEU reads the seed of its resampling from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of two means of seeds being equal (Welch 1947); two values or more.

    t = (m₁ - m₂) / √(s₁²/n₁ + s₂²/n₂), with Welch's degrees of freedom ν.
    """
    parts = [variance(values) / len(values) for values in (first, second)]
    apart = fmean(first) - fmean(second)
    if not sum(parts):
        return float(apart == 0)
    t = abs(apart) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    return _beyond(t, freedom)


def _beyond(t: float, freedom: float) -> float:
    """P(|T| > t) for Student's T: with t = √ν tan θ the density is cos(θ)^(ν-1), up to a factor."""
    start, steps = math.atan(t / math.sqrt(freedom)), 20_000
    width = (math.pi / 2 - start) / steps
    middles = start + width * (np.arange(steps) + 0.5)
    factor = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    return float(2 / math.sqrt(math.pi) * factor * width * (np.cos(middles) ** (freedom - 1)).sum())
