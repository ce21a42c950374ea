"""translate attend: what the model looks at while it translates."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import UsageError, listed
from translate.cli.fields import Device, Node
from translate.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from translate.inference.translator import Translator

log = logging.getLogger(__name__)

HELP = """\
translate attend: draw what the model attends to in a sentence

  translate attend run=runs/demo "¿Dónde está el tren?"
  translate attend run=runs/demo reference="Where is the train?" "¿Dónde está el tren?"
  translate attend run=runs/demo layer=3 head=2 pieces=true "¿Dónde está el tren?"
  translate attend run=runs/demo grid=true output=heads.png "¿Dónde está el tren?"
  translate attend run=runs/demo explain=true "¿Dónde está el tren?"

Row by row, the words of the translation; column by column, those of the source; the darker, the
more attention. Draws a PNG and an SVG picture, and a heatmap of characters on standard output.

Keys:
  run            the folder of the run (required)
  reference      the translation to attend from; default: the model's own
  output         the picture, .png, .svg or .pdf; default: a PNG and an SVG in plots/ of the run
  layer, head    which, counted from 1; default: the mean of all
  grid           true: every layer and head in one picture
  explain        true: draw nothing, but tell which kernel computes each fused attention call for
                 this sentence on this device, in training and in translating, and why not flash
  pieces         true: subword pieces; default: whole words (the sum over a source word's pieces,
                 the mean over a target word's)
  search         how to search for the translation; default: as stored in the run
  device         auto, cpu, cuda, cuda:1 or mps
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import search_node

    if not arguments.inspects and len(arguments.sentences) != 1:
        raise UsageError(f"attend draws one sentence at a time, not {len(arguments.sentences)}")
    launch(command, arguments, job, nodes={"search": search_node(arguments)})


def job(job: Job) -> None:
    """Check the configuration, then draw."""
    from translate.cli.validation import search_problems

    found = schema.problems(run, job.config, "") or search_problems(job.config["search"])
    if job.config["grid"] and (job.config["layer"], job.config["head"]) != (None, None):
        found.append("grid = True shows every layer and head: leave layer and head out")
    if job.config["explain"] and "output" in job.verbatim:
        found.append("explain = True draws nothing: leave output out")
    if found:
        raise listed(found)
    run(job, **job.config)


def run(
    job: Job,
    *,
    search: Node,
    device: Device,
    layer: PositiveInt | None,
    head: PositiveInt | None,
    grid: bool,
    pieces: bool,
    explain: bool,
) -> None:
    """Draw one sentence's attention, or explain how it is computed."""
    import numpy as np
    from rich.console import Console

    from translate.cli.stored import load_bundle, translator
    from translate.evaluation.alignment import word_attention
    from translate.plots import attention
    from translate.plots.terminal import TerminalHeatmap

    folder, (sentence,) = Path(job.verbatim["run"]), job.sentences
    model = translator(load_bundle(str(folder)), search=search, device=device)
    if explain:
        _explain(model, folder, sentence, job.verbatim.get("reference"))
        return
    found = model.align(sentence, job.verbatim.get("reference"))
    source, target = list(found.source_pieces), list(found.target_pieces)
    weights = found.weights
    if not pieces:
        layers, heads = weights.shape[:2]
        words = [
            [word_attention(source, target, weights[i, j]) for j in range(heads)]
            for i in range(layers)
        ]
        source, target = list(words[0][0].source), list(words[0][0].target)
        weights = np.stack(
            [np.stack([w.weights for w in row]) for row in words]
        )  # (L, H, T, S) of words
    mean = select(weights, layer, head)
    paths = pictures(folder, sentence, job.verbatim.get("output"))
    for path in paths:
        if grid:
            attention.grid(source, target, weights, path)
        else:
            attention.heatmap(source, target, mean, path)
    Console().print(TerminalHeatmap(source, target, mean))
    for path in paths:
        log.info("drawn: %s", path)


def _explain(model: Translator, run: Path, sentence: str, reference: str | None) -> None:
    """Print the fused attention calls and their kernels."""
    import torch

    from translate.cli.stored import training_config
    from translate.inference.explain import attention_calls, described
    from translate.training.precision import autocast_dtype, settle

    trainer = training_config(run).get("trainer", {})
    precision = settle(trainer.get("precision", "auto"), model.device.type)
    target = model.translate([sentence])[0] if reference is None else reference
    phases = attention_calls(model, sentence, target, autocast=autocast_dtype(precision))
    head = f"{model.device}, PyTorch {torch.__version__}, trained in {precision}"
    sys.stdout.write("\n".join([head, *described(phases)]) + "\n")


def select(
    weights: Float[np.ndarray, "L H T S"], layer: int | None, head: int | None
) -> Float[np.ndarray, "T S"]:
    """One layer's head; where none is named, the mean.

    Raises:
        UserError: the model has no such layer or head.
    """
    for axis, (name, number) in enumerate((("layer", layer), ("head", head))):
        count = weights.shape[axis]
        if number is not None and number > count:
            raise UserError(f"{name} = {number}: this model has {name}s 1 to {count}")
    chosen = weights[slice(None) if layer is None else slice(layer - 1, layer)]
    chosen = chosen[:, slice(None) if head is None else slice(head - 1, head)]
    return chosen.mean(axis=(0, 1))  # type: ignore[no-any-return]


def pictures(run: Path, sentence: str, output: str | None) -> list[Path]:
    """The files to draw: `output`, else a PNG and an SVG in the run, named after the sentence."""
    if output is not None:
        return [Path(output)]
    plain = unicodedata.normalize("NFKD", sentence).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    digest = hashlib.sha256(sentence.encode("utf-8", "replace")).hexdigest()[:6]
    name = "-".join(filter(None, ["attention", words, digest]))
    return [run / "plots" / f"{name}{suffix}" for suffix in (".png", ".svg")]
