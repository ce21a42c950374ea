"""translate attend: what the model looks at while it translates."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from translate.cli.options import (
    DEVICE,
    TARGET,
    Device,
    Group,
    Options,
    PathOption,
    Sentences,
    TextOption,
    search_problems,
)
from translate.names import on_demand

if TYPE_CHECKING:
    from translate.inference.translator import Translator

Attention = Literal["cross", "encoder", "decoder"]

log = logging.getLogger(__name__)

USAGE = """\
  translate attend run=runs/demo "¿Dónde está el tren?"
  translate attend run=runs/demo reference="Where is the train?" "¿Dónde está el tren?"
  translate attend run=runs/demo layer=3 head=2 pieces=true "¿Dónde está el tren?"
  translate attend run=runs/demo grid=true output=heads.png "¿Dónde está el tren?"
  translate attend run=runs/demo attention=encoder "¿Dónde está el tren?"
  translate attend run=runs/demo explain=true "¿Dónde está el tren?"
  translate attend run=runs/demo beside=runs/rnn output=both.html "¿Dónde está el tren?"

Rows are the words of the translation and columns those of the source; the darker a cell, the more
attention. A Transformer's self-attention has the same words on both sides. Writes a PNG and an SVG
picture, a page to explore in a browser, the weights as JSON, and a text heatmap to standard output.
A sentence may have up to 512 pieces; in the terminal, up to 100 words.
"""

FOR_SEVERAL = (".html", ".json")  # can hold two runs
FOR_ONE = (".png", ".svg", ".pdf")
LONGEST_SHOWN = 100  # words in a terminal
VIEWS = "translate.extras.attention_views"
TERMINAL = "translate.extras.terminal_heatmap:TerminalHeatmap"
PICTURE = ("layer", "head", "grid", "pieces", "attention")  # keys of what it shows


def output_problems(output: str | None, *, several: bool, grid: bool) -> list[str]:
    """Return the problems of output=: a file that cannot show two runs, or cannot be written."""
    if several and grid:
        return ["grid = True draws a single run: leave out beside (the HTML page shows all heads)"]
    allowed = FOR_SEVERAL if several else (*FOR_ONE, *FOR_SEVERAL)
    if output is None:
        return []
    if Path(output).suffix.lower() in allowed:
        there = next(folder for folder in Path(output).absolute().parents if folder.exists())
        if there.is_dir() and os.access(there, os.W_OK):
            return []
        return [f"output = {output!r} cannot be written: name a file in a folder that can be made"]
    what = " for two runs" if several else ""
    return [f"output = {output!r}{what}: end the name in {', '.join(allowed)}"]


class AttendOptions(Options):
    """The options of `translate attend`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    sentences: Sentences = ()
    beside: PathOption | None = Field(
        None, description="the folder of another run, to show beside it on the page and in the JSON"
    )
    reference: TextOption | None = Field(
        None, description="the translation to attend from; default: the model's own"
    )
    output: PathOption | None = Field(
        None,
        description="one file, by its ending: .png, .svg or .pdf, a picture; .html, the page (all "
        "layers and heads, words and pieces; nothing is loaded from elsewhere); .json, the "
        "weights; default: .png, .svg, .html and .json in plots/ of the run",
    )
    attention: Attention = Field(
        "cross",
        description="cross: what the translation looks at in the source; encoder or decoder: what "
        "the source or the translation looks at in itself (Transformer)",
    )
    layer: PositiveInt | None = Field(None, description="from 1; null: the mean of all")
    head: PositiveInt | None = Field(None, description="from 1; null: the mean of all")
    grid: bool = Field(False, description="true: every layer and head in one picture")
    explain: bool = Field(
        False,
        description="true: draw nothing; print which kernel computes each fused attention call for "
        "this sentence on this device, in training and in translation, and why it is not flash",
    )
    pieces: bool = Field(
        False,
        description="true: subword pieces; false: whole words (the sum over a source word's "
        "pieces, the mean over a target word's)",
    )
    target: str | None = Field(None, description=TARGET)
    search: Annotated[Any, Group(check=search_problems)] = Field(
        None, description="how to search; default: as stored in the run"
    )
    device: Device = DEVICE

    def contradictions(self) -> Iterator[str]:
        if len(self.sentences) != 1:
            count = len(self.sentences)
            hint = "put it in quotes" if count else 'give it as the last argument, in quotes: "…"'
            yield f"attend draws one sentence at a time, not {count}: {hint}"
        if self.grid and (self.layer, self.head) != (None, None):
            yield "grid = True shows every layer and head: leave out layer and head"
        if self.attention == "encoder" and self.reference is not None:
            yield "attention = 'encoder' looks only at the source: leave out reference"
        if self.explain:
            asked = {*self.typed, *self.verbatim}
            drawn = [key for key in (*PICTURE, "output") if key in asked]
            yield from (f"explain = True draws nothing: leave out {key}" for key in drawn)
        several = self.beside is not None
        yield from output_problems(self.output, several=several, grid=self.grid)


def run(options: AttendOptions) -> None:
    """Draw one sentence's attention, or explain how it is computed."""
    from rich.console import Console

    from translate.cli.streams import lines_in
    from translate.inference.bundle import of_run
    from translate.inference.translator import load

    layer, head, grid, pieces = options.layer, options.head, options.grid, options.pieces
    search, reference = options.search, options.reference
    folders = [folder for folder in (options.run, options.beside) if folder is not None]
    (sentence,) = lines_in({}, options.sentences)
    bundles = [of_run(folder).into(options.target) for folder in folders]
    models = [load(bundle, search=search, device=options.device) for bundle in bundles]
    if options.explain:
        covering = search.get("coverage_penalty", 0) > 0
        for folder, model in zip(folders, models, strict=True):
            if len(folders) > 1:
                sys.stdout.write(f"{folder}\n")
            _explain(model, Path(folder), sentence, reference, covering=covering)
        return
    read, write, files = (
        on_demand(f"{VIEWS}:{name}") for name in ("read_attention", "write_view", "view_files")
    )
    runs = [
        read(folder, bundle, model, sentence, reference, options.attention)
        for folder, bundle, model in zip(folders, bundles, models, strict=True)
    ]
    means = [each.select(layer, head, pieces=pieces) for each in runs]  # may fail: before writing
    console = Console()
    for each, mean in zip(runs, means, strict=True):
        if len(runs) > 1:
            console.print(f"\n{each.run}", markup=False, highlight=False, soft_wrap=True)
        tokens = each.tokens(pieces=pieces)
        if max(mean.shape) > LONGEST_SHOWN:
            log.info("%d × %d words and ends are too many for the terminal", *mean.shape)
            continue
        console.print(on_demand(TERMINAL)(tokens.source, tokens.target, mean))
    view = [f"layer{layer}"] * (layer is not None) + [f"head{head}"] * (head is not None)
    view += ["grid"] * grid + ["pieces"] * pieces
    for path in files(runs, options.output, view):
        write(path, runs, means, layer=layer, head=head, grid=grid, pieces=pieces)
        log.info("written: %s", path)


def _explain(
    model: Translator, run: Path, sentence: str, reference: str | None, *, covering: bool
) -> None:
    """Print the fused attention calls and their kernels."""
    from translate.run_folder import configuration

    trainer = configuration(run).get("trainer", {})
    lines = on_demand("translate.extras.explain:explained")(
        model, run, trainer, sentence, reference, covering=covering
    )
    sys.stdout.write("\n".join(lines) + "\n")
