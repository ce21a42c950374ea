"""Verify that a model still gives the translations and scores of its stored evaluation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from translate.evaluation.metrics import corpus_scores

if TYPE_CHECKING:
    from translate.evaluation.report import Stored
    from translate.evaluation.test_sets import TestSet
    from translate.inference.translator import Translator


def differences(
    stored: Stored,
    translator: Translator,
    test_set: TestSet,
    *,
    model_sha256: str,
) -> list[str]:
    """Translate and score again; a line for each difference from what is stored, none if equal.

    Scores are compared to the last bit. Model and text are compared first, and nothing is
    translated if they differ.
    """
    hashes = {
        "model": model_sha256,
        "sources": test_set.sources_sha256,
        "references": test_set.references_sha256,
    }
    changed = [
        f"the {name} changed: SHA-256 {digest[:12]}…, but {str(expected)[:12]}… is stored"
        for name, digest in hashes.items()
        if digest != (expected := stored.figures["sha256"].get(name))
    ]
    if changed:
        return changed
    hypotheses = [best.text for best, *_ in translator.stream(test_set.sources)]
    if hypotheses != stored.hypotheses:
        changed.append("translations changed")
    scores = corpus_scores(hypotheses, test_set.references, tokenize=stored.tokenize)
    for name, score in asdict(scores).items():
        for key, value in score.items():
            if value != (expected := stored.figures.get(name, {}).get(key)):
                changed.append(f"{name} {key} is {value}, but {expected} is stored")
    return changed
