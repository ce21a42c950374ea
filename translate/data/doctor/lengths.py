"""Sides that are empty, or far too long for each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from translate.data.doctor.finding import Finding, Splits, lines_of
from translate.data.text import has_text

FAR = 7.0  # standard deviations of length beyond which a pair is an outlier
NARROWEST = 0.25  # of δ: the text of a template hardly varies, which makes nothing an outlier
FEWEST = 50  # pairs, to know what is usual


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
    if known.sum() >= FEWEST:
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
