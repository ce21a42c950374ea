"""Minimum Bayes risk: of many candidates, the one that is most like all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from translate.data.plain_text import spaced
from translate.inference.translation import Translation

Utility = Literal["chrf", "bleu"]
SentenceScore = Callable[[str, str], float]  # hypothesis, reference → 0 … 100


def ranked(translations: Sequence[Translation], utility: Utility) -> list[Translation]:
    """Rank translations by the utility expected of each, which becomes its score; best first."""
    utilities = expected_utilities([translation.text for translation in translations], utility)
    scored = [replace(one, score=score) for one, score in zip(translations, utilities, strict=True)]
    return sorted(scored, key=lambda translation: translation.score, reverse=True)


def expected_utilities(candidates: Sequence[str], utility: Utility) -> list[float]:
    """u(y) = Σ_y' u(y, y') / n over all n candidates y', themselves included.

    Of samples that is the Monte Carlo estimate of the utility expected under the model, where a
    candidate that was drawn twice counts twice (Eikema and Aziz 2020, eq. 4). The utility is
    sacreBLEU's sentence score, chrF2 or BLEU-4 with effective order, whose words are the characters
    of a script without spaces.
    """
    score = UTILITIES[utility]()
    counts = Counter(candidates)
    expected = {
        text: sum(n * score(text, other) for other, n in counts.items()) / len(candidates)
        for text in counts
    }
    return [expected[text] for text in candidates]


def _chrf() -> SentenceScore:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return lambda hypothesis, reference: metric.sentence_score(hypothesis, [reference]).score


def _bleu() -> SentenceScore:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)
    # without spaces a sentence were one word, and no translation better than another
    return lambda hypothesis, reference: (
        metric.sentence_score(spaced(hypothesis), [spaced(reference)]).score
    )


UTILITIES: Mapping[Utility, Callable[[], SentenceScore]] = {"chrf": _chrf, "bleu": _bleu}
