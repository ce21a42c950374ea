"""translate attend: what the model looks at while it translates."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from translate.cli.commands import Job
from translate.cli.options import Device, Group, Options, PathOption, Sentences, TextOption
from translate.cli.translating import TARGET, search_problems
from translate.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from translate.inference.bundle import Bundle
    from translate.inference.translation import AttentionMap
    from translate.inference.translator import Translator
    from translate.plots.attention_page import Attended, Tokens

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

FOR_SEVERAL = (".html", ".json")  # what can hold two runs
FOR_ONE = (".png", ".svg", ".pdf")
LONGEST_DRAWN, LONGEST_SHOWN = 512, 100  # pieces in a picture, words in a terminal
PICTURE = ("layer", "head", "grid", "pieces", "attention")  # keys of what it shows


def output_problems(job: Job) -> list[str]:
    """Files that cannot show what they are to."""
    several, output = "beside" in job.verbatim, job.verbatim.get("output")
    if several and job.config["grid"]:
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
        description="how to search; default: as stored in the run"
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:1 or mps")

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
        yield from output_problems(self.job)


def run(options: AttendOptions) -> None:
    """Draw one sentence's attention, or explain how it is computed."""
    from rich.console import Console

    from translate.cli.stored import into, load_bundle
    from translate.cli.streams import lines_in
    from translate.inference.translator import load
    from translate.plots.terminal import TerminalHeatmap

    job, search, target, device = options.job, options.search, options.target, options.device
    layer, head, grid, pieces = options.layer, options.head, options.grid, options.pieces
    attention = options.attention
    folders = [job.verbatim[key] for key in ("run", "beside") if key in job.verbatim]
    (sentence,) = lines_in({}, job.sentences)
    if options.explain:
        for folder in folders:
            if len(folders) > 1:
                sys.stdout.write(f"{folder}\n")
            model = load(into(load_bundle(folder), target), search=search, device=device)
            covering = search.get("coverage_penalty", 0) > 0
            _explain(
                model, Path(folder), sentence, job.verbatim.get("reference"), covering=covering
            )
        return
    runs = []
    for folder in folders:
        bundle = into(load_bundle(folder), target)
        model = load(bundle, search=search, device=device)
        reference = job.verbatim.get("reference")
        found = _seen(model, folder, sentence, reference, attention)
        given = reference is not None
        runs.append(attended(folder, bundle, found, attention=attention, given=given))
    means = [select(each, layer, head, pieces=pieces) for each in runs]  # may fail: before writing
    console = Console()
    for each, mean in zip(runs, means, strict=True):
        if len(runs) > 1:
            console.print(f"\n{each.run}", markup=False, highlight=False, soft_wrap=True)
        shown = tokens(each, pieces=pieces)
        if max(mean.shape) > LONGEST_SHOWN:
            log.info("%d × %d words and ends are too many for the terminal", *mean.shape)
            continue
        console.print(TerminalHeatmap(shown.source, shown.target, mean))
    view = [f"layer{layer}"] * (layer is not None) + [f"head{head}"] * (head is not None)
    view += ["grid"] * grid + ["pieces"] * pieces
    for path in files(runs, job.verbatim.get("output"), view):
        write(path, runs, means, layer=layer, head=head, grid=grid, pieces=pieces)
        log.info("written: %s", path)


def _seen(
    model: Translator, run: str, sentence: str, reference: str | None, attention: Attention
) -> AttentionMap:
    """What a run's model attends to; an error names the run, for there may be two."""
    try:
        _refuse_long("the sentence", model.tokenizers.source.encode(sentence))
        if reference is not None:
            _refuse_long("reference", model.tokenizers.target.encode(reference))
        if attention == "cross":
            return model.align(sentence, reference)
        return model.self_attention(sentence, reference, side=attention)
    except UserError as error:
        raise UserError(f"{run}: {error}") from error


def _refuse_long(name: str, pieces: Sequence[int]) -> None:
    if len(pieces) > LONGEST_DRAWN:
        raise UserError(
            f"{name} has {len(pieces):,} pieces, but at most {LONGEST_DRAWN} are drawn: give a "
            "shorter one"
        )


def attended(
    run: str, bundle: Bundle, found: AttentionMap, *, attention: Attention, given: bool
) -> Attended:
    """Pieces and words of a sentence, with where they come from."""
    from translate.evaluation.alignment import word_attention
    from translate.plots.attention_page import Attended, Tokens

    words = word_attention(found.source_pieces, found.target_pieces, found.weights)
    return Attended(
        run=run,
        family=bundle.config.family,
        languages=bundle.config.languages,
        attention=attention,
        source=found.source,
        target=found.target,
        target_given=given,
        words=Tokens(words.source, words.target, words.weights),
        pieces=Tokens(found.source_pieces, found.target_pieces, found.weights),
    )


def tokens(run: Attended, *, pieces: bool) -> Tokens:
    """What a picture shows."""
    return run.pieces if pieces else run.words


def _explain(
    model: Translator, run: Path, sentence: str, reference: str | None, *, covering: bool
) -> None:
    """Print the fused attention calls and their kernels."""
    from translate.cli.stored import training_config
    from translate.names import on_demand

    trainer = training_config(run).get("trainer", {})
    lines = on_demand("translate.extras.explain:explained")(
        model, run, trainer, sentence, reference, covering=covering
    )
    sys.stdout.write("\n".join(lines) + "\n")


def select(
    run: Attended, layer: int | None, head: int | None, *, pieces: bool
) -> Float[np.ndarray, "T S"]:
    """One layer's head; where none is named, the mean.

    Raises:
        UserError: the model has no such layer or head.
    """
    weights = tokens(run, pieces=pieces).weights
    for axis, (name, number) in enumerate((("layer", layer), ("head", head))):
        count = weights.shape[axis]
        if number is not None and number > count:
            raise UserError(f"{name} = {number}: the model of {run.run} has {name}s 1 to {count}")
    chosen = weights[slice(None) if layer is None else slice(layer - 1, layer)]
    chosen = chosen[:, slice(None) if head is None else slice(head - 1, head)]
    return chosen.mean(axis=(0, 1))  # type: ignore[no-any-return]


def write(
    path: Path,
    runs: Sequence[Attended],
    means: Sequence[Float[np.ndarray, "T S"]],
    *,
    layer: int | None,
    head: int | None,
    grid: bool,
    pieces: bool,
) -> None:
    """Write what the path's ending asks for."""
    from translate.plots import attention, attention_page

    kind, shown = path.suffix.lower(), tokens(runs[0], pieces=pieces)
    if kind == ".json":
        attention_page.write_json(runs, path)
    elif kind == ".html":
        attention_page.write_page(runs, path, layer=layer, head=head, pieces=pieces)
    elif grid:
        attention.grid(shown.source, shown.target, shown.weights, path)
    else:
        named = (("layer", layer), ("head", head))
        caption = " ".join(f"{name} {number}" for name, number in named if number is not None)
        attention.heatmap(shown.source, shown.target, means[0], path, caption)


def files(runs: Sequence[Attended], output: str | None, view: Sequence[str] = ()) -> list[Path]:
    """The files to write: `output`, else one of each kind in the run, named after the sentence.

    What is seen in another translation, by other runs or in another view has a name of its own;
    the JSON holds all views.
    """
    if output is not None:
        return [Path(output)]
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
