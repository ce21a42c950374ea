"""Whether a model still gives what its stored evaluation says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from translate.evaluation import report
from translate.evaluation.metrics import evaluate

if TYPE_CHECKING:
    from translate.inference.translator import Translator


def differences(
    stored: report.Stored,
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    model_sha256: str,
) -> list[str]:
    """Translate and score again; a line for each difference from what is stored, none if equal.

    Scores are compared to the last bit. Model and text are compared first, and nothing is
    translated if they differ.
    """
    given = {
        "model": model_sha256,
        "sources": report.fingerprint(sources),
        "references": report.fingerprint([list(item) for item in references]),
    }
    changed = [
        f"the {name} changed: SHA-256 {digest[:12]}…, stored is {str(expected)[:12]}…"
        for name, digest in given.items()
        if digest != (expected := stored.figures["sha256"].get(name))
    ]
    if changed:
        return changed
    hypotheses = [best.text for best, *_ in translator.stream(sources)]
    if hypotheses != stored.hypotheses:
        changed.append("translations changed")
    scores = evaluate(hypotheses, references, tokenize=stored.tokenize)
    for name, found in asdict(scores).items():
        for key, value in found.items():
            if value != (expected := stored.figures.get(name, {}).get(key)):
                changed.append(f"{name} {key} is {value}, stored is {expected}")
    return changed
