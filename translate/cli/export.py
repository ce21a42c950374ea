"""translate export: a model in the format of another engine."""

from __future__ import annotations

import logging
from typing import Literal

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import listed
from translate.inference.engines import Quantization

log = logging.getLogger(__name__)

HELP = """\
translate export: write a model in the format of another engine, and check it against the original

  translate export run=runs/demo
  translate export run=runs/demo quantization=int8 input=dev.es output=demo-int8
  translate text run=runs/demo engine=ctranslate2 "¿Dónde está el tren?"

The export is first written in float32, where both engines must translate the same sentences
greedily to the same words, but for near-ties, with the same log-probabilities, within 0.001. In the
quantization asked for, how many translations differ is reported. The folder holds the tokenizers
too, so that CTranslate2 can use it alone. What an engine cannot carry is refused with the reason.

Keys:
  run            the folder of the run (required)
  output         the folder to write; default: ctranslate2 in the run
  to             ctranslate2
  quantization   float32, float16, bfloat16, int16, int8, int8_float32 or int8_bfloat16
  input          sentences for the comparison, a line each; default: random pieces
  sentences      how many of them
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import search_node

    search_node(arguments)  # a missing run is told before anything else
    launch(command, arguments, job)


def job(job: Job) -> None:
    """Check the configuration, then export."""
    if found := schema.problems(run, job.config, ""):
        raise listed(found)
    run(job, **job.config)


def run(
    job: Job,
    *,
    to: Literal["ctranslate2"],
    quantization: Quantization,
    sentences: PositiveInt,
) -> None:
    """Export and compare."""
    from itertools import islice

    from translate.cli import streams
    from translate.cli.engines import export_folder
    from translate.cli.stored import load_bundle
    from translate.inference.export import export_ctranslate2, random_sentences
    from translate.inference.segments import has_text

    folder = export_folder(job.verbatim["run"], job.verbatim.get("output"))
    bundle = load_bundle(job.verbatim["run"])
    source = bundle.tokenizers.source
    if "input" in job.verbatim:
        lines = filter(has_text, streams.lines_in(job.verbatim))
        compared = [source.encode(line) for line in islice(lines, sentences)]
    else:
        compared = random_sentences(sentences, vocab_size=len(source))
    for name, parity in export_ctranslate2(
        bundle, folder, quantization=quantization, sentences=compared
    ):
        log.info("%s: %s", name, parity)
    log.info("written to %s", folder)
