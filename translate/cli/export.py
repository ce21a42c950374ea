"""translate export: a model in the format of another engine."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from translate.cli.options import Options, PathOption
from translate.files import refuse_links
from translate.inference import Quantization
from translate.names import on_demand

CHECK = "translate.extras.model_export:check_replaceable"
EXPORT = "translate.extras.model_export:export"
log = logging.getLogger(__name__)

USAGE = """\
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
"""


class ExportOptions(Options):
    """The options of `translate export`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    output: PathOption | None = Field(
        None,
        description="the folder to write, new or an export to replace; default: a folder in the "
        "run named after `to`",
    )
    to: Literal["ctranslate2", "onnx", "torch"] = Field(
        "ctranslate2", description="ctranslate2, an engine; onnx or torch: graphs for any engine"
    )
    quantization: Quantization = Field(
        "float32",
        description="with to=ctranslate2: float32, float16, bfloat16, int16, int8, int8_float32 or "
        "int8_bfloat16",
    )
    input: PathOption | None = Field(
        None, description="sentences for the comparison, one per line; default: random pieces"
    )
    sentences: PositiveInt = Field(200, description="how many sentences both engines translate")

    def contradictions(self) -> Iterator[str]:
        if self.to != "ctranslate2" and self.quantization != "float32":
            yield (
                f"quantization = {self.quantization} needs to=ctranslate2: to={self.to} always "
                "writes float32"
            )


def run(options: ExportOptions) -> None:
    """Export and compare."""
    from translate.cli import streams
    from translate.inference.bundle import of_run

    if options.output is None:
        refuse_links(Path(options.run), options.to)
    folder = Path(options.output or Path(options.run, options.to)).absolute()
    on_demand(CHECK)(folder)
    to, quantization = options.to, options.quantization
    exports = on_demand(EXPORT)(
        of_run(options.run), folder, to=to, quantization=quantization,
        lines=streams.lines_in({"input": options.input}) if options.input is not None else None,
        sentences=options.sentences,
    )  # fmt: skip
    for name, parity in exports:
        log.info("%s: %s", name, parity.summary())
    log.info("written to %s", folder)
    if quantization != "float32":
        evaluate = ["translate", "evaluate", f"run={options.run}"]
        quantized = [f"engine={to}", f"export={folder}", f"output={folder}-evaluation"]
        log.info("to measure the BLEU of %s: %s", quantization, shlex.join([*evaluate, *quantized]))
        log.info("and that of the original: %s", shlex.join(evaluate))
