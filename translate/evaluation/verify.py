"""Whether a stored evaluation says what its model still does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from translate.errors import UserError
from translate.evaluation import report
from translate.evaluation.metrics import evaluate
from translate.evaluation.run import HasText


class Streams(Protocol):
    """What translates lines, as `inference.translator.Translator` does."""

    def stream(self, lines: Iterable[str], /) -> Iterator[Sequence[HasText]]:
        """An n-best list a line, in the order of the lines, best first."""
        ...


def read_stored(folder: Path, split: str) -> dict[str, Any]:
    """What `translate evaluate` has left of a split.

    Raises:
        UserError: nothing that can be read.
    """
    path = folder / f"{split}.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is not there to verify: translate evaluate writes it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): run translate evaluate again") from error
    if not isinstance(stored, dict) or not {"bleu", "decoding", "sha256"} <= stored.keys():
        raise UserError(f"{path} is no evaluation: run translate evaluate again")
    return stored


def differences(
    stored: Mapping[str, Any],
    translator: Streams,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    model_sha256: str,
) -> list[str]:
    """Translate and score again; a line for each thing that is not what is stored, none if equal.

    Scores are compared to the last bit. What comes in is compared first: where model or text are
    others, nothing is translated.
    """
    given = {
        "model": model_sha256,
        "sources": report.fingerprint(sources),
        "references": report.fingerprint([list(item) for item in references]),
    }
    changed = [
        f"the {name} changed: SHA-256 {digest[:12]}…, stored is {str(expected)[:12]}…"
        for name, digest in given.items()
        if digest != (expected := stored["sha256"].get(name))
    ]
    if changed:
        return changed
    hypotheses = [best.text for best, *_ in translator.stream(sources)]
    if report.digest(report.as_lines(hypotheses)) != stored["sha256"].get("hypotheses"):
        changed.append("translations changed")
    tokenize = stored.get("tokenize", "13a")  # older evaluations do not say, and had no other
    for name, found in evaluate(hypotheses, references, tokenize=tokenize).as_dict().items():
        for key, value in found.items():
            if value != (expected := stored.get(name, {}).get(key)):
                changed.append(f"{name} {key} is {value}, stored is {expected}")
    return changed
