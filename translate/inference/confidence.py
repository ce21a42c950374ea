"""Confidence in a translation: the chance that it is good, learned from sentences with references.

Platt 1999, "Probabilistic outputs for support vector machines", section 2, with the
length-normalised log-probability of a translation as its only evidence:
P(good) = 1 / (1 + exp(-(a x + b))), x = log P(y | source) / |y|. `translate calibrate` writes it to
confidence.json beside the bundle.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, NonNegativeFloat, ValidationError

from translate import files
from translate.errors import UserError
from translate.inference.bundle import read_bounded
from translate.inference.translation import Translation

log = logging.getLogger(__name__)

FILE = "confidence.json"
ENOUGH = 10  # lines: of fewer the mean says little
FAR = 0.5  # of the mean confidence of the test sentences
LARGEST = 1 << 20  # bytes


class Confidence(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The two numbers, and what they were learned for.

    Attributes:
        slope: a; 0 or more.
        intercept: b.
        good: the sentence chrF from which on a translation counts as good.
        weights_sha256: of the model.
        search: how it searched, the keys of conf/search.
        unsure: the confidence that only one in a hundred of these sentences stays below; a
            translation below it is flagged. 0 in earlier files.
        judged: how right it was on sentences it was not learned from.
    """

    slope: NonNegativeFloat
    intercept: float
    good: float
    weights_sha256: str
    search: dict[str, Any]
    judged: dict[str, int | float]
    unsure: NonNegativeFloat = 0.0

    def __call__(self, evidence: float) -> float:
        """Return the chance that a translation of this `evidence` is good."""
        return (1 + math.tanh((self.slope * evidence + self.intercept) / 2)) / 2

    def marked(self, translation: Translation) -> Translation:
        """Return a translation, flagged where it is unsure."""
        chance = translation.confidence
        if chance is None or chance >= self.unsure:
            return translation
        return replace(translation, flags=(*translation.flags, "unsure"))

    def finds_far(self, chances: Sequence[float]) -> bool:
        """Tell whether a text of this confidence is far from what the model was trained on."""
        usual = self.judged.get("expected", 0.0)
        return len(chances) >= ENOUGH and fmean(chances) < FAR * usual


def evidence(log_prob: float, pieces: int) -> float:
    """Return the mean log-probability of the pieces of a translation and of its end."""
    return log_prob / (pieces + 1)


def write(run: Path, confidence: Confidence) -> None:
    """Write it where `read` finds it.

    Raises:
        UserError: the folder cannot be written to.
    """
    files.refuse_links(run, FILE)
    files.write(run / FILE, confidence.model_dump_json(indent=2).encode() + b"\n")


def read(run: Path, *, weights_sha256: str, search: Mapping[str, Any]) -> Confidence | None:
    """Return what `translate calibrate` has learned for these weights and search, if anything.

    Raises:
        UserError: the file is damaged.
    """
    path = run / FILE
    if not path.exists():
        return None
    try:
        stored = Confidence.model_validate_json(read_bounded(path, largest=LARGEST))
    except ValidationError as error:
        raise UserError(
            f"{path} cannot be read: write it anew with translate calibrate run={run}"
        ) from error
    if (stored.weights_sha256, stored.search) != (weights_sha256, dict(search)):
        log.info("ignoring %s, which is for different weights or another search", path)
        return None
    return stored
