"""A sentence's attention as data (JSON) and as a page to explore it in (HTML).

The JSON, which the page carries too, holds one entry a run; layers, heads and tokens are counted
from 0, and weights are rounded to six digits:

    {"format": 1,
     "runs": [{"model": {"run": "runs/demo", "family": "transformer", "languages": ["es", "en"]},
               "attention": "cross",                   # or encoder, decoder: the same on both sides
               "source": "¿Dónde está el tren?",
               "target": "Where is the train?",
               "target_given": false,                  # true: by reference=, not by the model
               "words":  {"source": ["¿Dónde", …, "</s>"],
                          "target": ["Where", …, "</s>"],
                          "weights": [layer][head][target][source]},
               "pieces": …}]}                          # of the same shape

The page is one file without references: it works without a network, and from a disk. Its own
Content-Security-Policy forbids it to load anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from translate.files import write

FORMAT = 1  # raised when a reader of the older one would misread the newer
DIGITS = 6


@dataclass(frozen=True, eq=False)
class Tokens:
    """Words or pieces, and what each target token gives to each source token."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Float[np.ndarray, "L H T S"]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "source": list(self.source),
            "target": list(self.target),
            "weights": self.weights.astype(np.float64).round(DIGITS).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Attended:
    """What one run's model looked at in one sentence.

    Attributes:
        languages: of the source and the translation.
        attention: "cross", of the translation over the source; "encoder" or "decoder", of one of
            them over itself: `source` and `target` are then the same.
    """

    run: str
    family: str
    languages: tuple[str, str]
    attention: str
    source: str
    target: str
    target_given: bool
    words: Tokens
    pieces: Tokens

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "model": {
                "run": self.run,
                "family": self.family,
                "languages": list(self.languages),
            },
            "attention": self.attention,
            "source": self.source,
            "target": self.target,
            "target_given": self.target_given,
            "words": self.words.record(),
            "pieces": self.pieces.record(),
        }


def write_json(runs: Sequence[Attended], path: Path) -> None:
    """Write the data of one or more runs.

    Raises:
        UserError: the path cannot be written.
    """
    text = json.dumps(_document(runs), ensure_ascii=False, allow_nan=False)
    write(path, f"{text}\n".encode("utf-8", "replace"))


def write_page(
    runs: Sequence[Attended],
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    pieces: bool = False,
) -> None:
    """Write the page, several runs side by side.

    It opens with a layer and head that every run has, counted from 1 (None: the mean of all), and
    with words or pieces.

    Raises:
        UserError: the path cannot be written.
    """
    start = {"unit": "pieces" if pieces else "words", "layer": layer, "head": head}
    template = resources.files("translate.plots").joinpath("attention_page.html")
    page = (
        template.read_text("utf-8")
        .replace("<!--title-->", html.escape(f"Attention: {runs[0].source}"))
        .replace("<!--data-->", _embedded({**_document(runs), "start": start}))
    )
    write(path, page.encode("utf-8", "replace"))


def _document(runs: Sequence[Attended]) -> dict[str, Any]:
    return {"format": FORMAT, "runs": [run.record() for run in runs]}


def _embedded(value: Any) -> str:
    """JSON for the inside of a script element: no `<` could end the element or open a comment."""
    return json.dumps(value, allow_nan=False).replace("<", r"\u003c")
