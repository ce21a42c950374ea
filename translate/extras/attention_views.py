"""A sentence's attention: read from a model, as data (JSON), and as a page to explore it (HTML).

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

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from translate.errors import UserError
from translate.extras.attention_pictures import grid as draw_grid
from translate.extras.attention_pictures import heatmap
from translate.extras.page_templates import templates
from translate.extras.word_attention import word_attention
from translate.files import refuse_links, write
from translate.inference.bundle import Bundle
from translate.inference.translator import Translator

Kind = Literal["cross", "encoder", "decoder"]

FORMAT = 1  # raised when a reader of the older one would misread the newer
DIGITS = 6
FOR_SEVERAL = (".html", ".json")  # can hold two runs
LONGEST_DRAWN = 512  # pieces in a picture


@dataclass(frozen=True, eq=False)
class Tokens:
    """Words or pieces, and what each target token gives to each source token."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Float[np.ndarray, "L H T S"]

    def record(self) -> dict[str, Any]:
        """The values of its JSON."""
        return {
            "source": list(self.source),
            "target": list(self.target),
            "weights": self.weights.astype(np.float64).round(DIGITS).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Attended:
    """One run's attention in one sentence.

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

    def tokens(self, *, pieces: bool) -> Tokens:
        """The pieces, or the words."""
        return self.pieces if pieces else self.words

    def select(
        self, layer: int | None, head: int | None, *, pieces: bool
    ) -> Float[np.ndarray, "T S"]:
        """One layer's head; where none is named, the mean.

        Raises:
            UserError: the model has no such layer or head.
        """
        weights = self.tokens(pieces=pieces).weights
        for axis, (name, number) in enumerate((("layer", layer), ("head", head))):
            count = weights.shape[axis]
            if number is not None and number > count:
                raise UserError(
                    f"{name} = {number}: the model of {self.run} has {name}s 1 to {count}"
                )
        chosen = weights[slice(None) if layer is None else slice(layer - 1, layer)]
        chosen = chosen[:, slice(None) if head is None else slice(head - 1, head)]
        return chosen.mean(axis=(0, 1))  # type: ignore[no-any-return]

    def record(self) -> dict[str, Any]:
        """The values of its JSON."""
        model = {"run": self.run, "family": self.family, "languages": list(self.languages)}
        return {
            "model": model,
            "attention": self.attention,
            "source": self.source,
            "target": self.target,
            "target_given": self.target_given,
            "words": self.words.record(),
            "pieces": self.pieces.record(),
        }


def read_attention(
    run: str,
    loaded: Bundle,
    model: Translator,
    sentence: str,
    reference: str | None,
    attention: Kind,
) -> Attended:
    """Read a run's attention while it translates, or reads the reference.

    Raises:
        UserError: a text that is too long, or a model without such attention; it names the run.
    """
    tokenizers = model.tokenizers
    for name, pieces in (
        ("the sentence", tokenizers.source.encode(sentence)),
        ("reference", tokenizers.target.encode(reference or "")),
    ):
        if len(pieces) > LONGEST_DRAWN:
            raise UserError(
                f"{run}: {name} has {len(pieces):,} pieces, but at most {LONGEST_DRAWN} are drawn: "
                "give a shorter one"
            )
    try:
        if attention == "cross":
            seen = model.align(sentence, reference)
        else:
            seen = model.self_attention(sentence, reference, side=attention)
    except UserError as error:
        raise UserError(f"{run}: {error}") from error
    words = word_attention(seen.source_pieces, seen.target_pieces, seen.weights)
    return Attended(
        run=run,
        family=loaded.config.family,
        languages=loaded.config.languages,
        attention=attention,
        source=seen.source,
        target=seen.target,
        target_given=reference is not None,
        words=Tokens(words.source, words.target, words.weights),
        pieces=Tokens(seen.source_pieces, seen.target_pieces, seen.weights),
    )


def write_view(
    path: Path,
    runs: Sequence[Attended],
    means: Sequence[Float[np.ndarray, "T S"]],
    *,
    layer: int | None,
    head: int | None,
    grid: bool,
    pieces: bool,
) -> None:
    """Write a picture, the page or the data, by the ending of the path."""
    kind, shown = path.suffix.lower(), runs[0].tokens(pieces=pieces)
    if kind == ".json":
        write_json(runs, path)
    elif kind == ".html":
        write_page(runs, path, layer=layer, head=head, pieces=pieces)
    elif grid:
        draw_grid(shown.source, shown.target, shown.weights, path)
    else:
        named = (("layer", layer), ("head", head))
        caption = " ".join(f"{name} {number}" for name, number in named if number is not None)
        heatmap(shown.source, shown.target, means[0], path, caption)


def view_files(
    runs: Sequence[Attended], output: str | None, view: Sequence[str] = ()
) -> list[Path]:
    """The files to write: `output`, else one of each kind in the run, named after the sentence.

    Another translation, other runs and another view have names of their own; the JSON holds all
    views.
    """
    if output is not None:
        return [Path(output)]
    refuse_links(Path(runs[0].run), "plots")
    sentence = runs[0].source
    plain = unicodedata.normalize("NFKD", sentence).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    texts = [text for each in runs for text in (each.target, str(each.target_given))]
    named = "\n".join([sentence, *texts, *(each.run for each in runs[1:])])
    digest = hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:6]
    kind = "" if runs[0].attention == "cross" else runs[0].attention
    name = "-".join(filter(None, ["attention", kind, words, digest]))
    seen = "-".join([name, *view])
    kinds = FOR_SEVERAL if len(runs) > 1 else (".png", ".svg", *FOR_SEVERAL)
    plots = Path(runs[0].run) / "plots"
    return [plots / f"{name if kind == '.json' else seen}{kind}" for kind in kinds]


def write_json(runs: Sequence[Attended], path: Path) -> None:
    """Write the data of one or more runs.

    Raises:
        UserError: the path cannot be written.
    """
    document = {"format": FORMAT, "runs": [run.record() for run in runs]}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
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
    document = {"format": FORMAT, "runs": [run.record() for run in runs], "start": start}
    # inside a script element: no `<` could end the element or open a comment
    data = Markup(json.dumps(document, allow_nan=False).replace("<", r"\u003c"))
    template = templates().get_template("attention.html")
    page = template.render(title=f"Attention: {runs[0].source}", data=data)
    write(path, page.encode("utf-8", "replace"))
