"""translate export: a model in the format of another engine."""

from __future__ import annotations

import logging
import shlex
from typing import Literal

from pydantic import PositiveInt

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import UsageError, refuse
from translate.inference.choices import Quantization
from translate.names import on_demand

CHECK = "translate.extras.model_export:check_replaceable"
EXPORT = "translate.extras.model_export:export"
log = logging.getLogger(__name__)

HELP = """\
translate export: write a model for another engine, and check it against the original

  translate export run=runs/demo
  translate export run=runs/demo quantization=int8 input=dev.es output=demo-int8
  translate text run=runs/demo engine=ctranslate2 "¿Dónde está el tren?"
  translate export run=runs/demo to=onnx && python runs/demo/onnx/decoder.py < dev.es

The export is first written in float32 and checked: both engines must translate the same sentences
greedily to the same words, except for near-ties, with the same log-probabilities within 0.001. For
the requested quantization, the number of translations that differ is reported, with the commands
that measure its BLEU and the original's; if this processor does not support it, another is measured
in its place, and reported. The folder also holds the tokenizers, so it can be used on its own.
A model that an engine cannot represent is refused with the reason.

`onnx` and `torch` write two graphs, one that reads the source and one for a step of the decoder,
for any batch and length; graphs.json names their inputs and outputs. decoder.py, written beside the
ONNX files, translates with them without the rest of this program. `torch` files are torch.export
programs.

Keys:
  run            the folder of the run (required)
  output         the folder to write, new or an export to replace; default: a folder in the run
                 named after `to`, and in a sweep (--multirun) after what differs between jobs
  to             ctranslate2, onnx or torch
  quantization   ctranslate2: float32, float16, bfloat16, int16, int8, int8_float32 or int8_bfloat16
  input          sentences for the comparison, one per line; default: random pieces
  sentences      how many to compare
"""


def job(job: Job) -> None:
    """Check the configuration, then export."""
    refuse(schema.problems(run, job.config, ""))
    to, quantization = job.config["to"], job.config["quantization"]
    if to != "ctranslate2" and quantization != "float32":
        raise UsageError(
            f"quantization = {quantization} needs to=ctranslate2: to={to} always writes float32"
        )
    run(job, **job.config)


def run(
    job: Job,
    *,
    to: Literal["ctranslate2", "onnx", "torch"],
    quantization: Quantization,
    sentences: PositiveInt,
) -> None:
    """Export and compare."""
    from translate.cli import streams
    from translate.cli.engines import export_folder
    from translate.cli.stored import load_bundle

    output = job.verbatim.get("output")
    folder = export_folder(job.verbatim["run"], job.name(to, "to"), output).absolute()
    on_demand(CHECK)(folder)
    exports = on_demand(EXPORT)(
        load_bundle(job.verbatim["run"]), folder, to=to, quantization=quantization,
        lines=streams.lines_in(job.verbatim) if "input" in job.verbatim else None,
        sentences=sentences,
    )  # fmt: skip
    for name, parity in exports:
        log.info("%s: %s", name, parity.summary(random="input" not in job.verbatim))
    log.info("written to %s", folder)
    if quantization != "float32":
        evaluate = ["translate", "evaluate", f"run={job.verbatim['run']}"]
        quantized = [f"engine={to}", f"export={folder}", f"output={folder}-evaluation"]
        log.info("to measure the BLEU of %s: %s", quantization, shlex.join([*evaluate, *quantized]))
        log.info("and that of the original: %s", shlex.join(evaluate))
