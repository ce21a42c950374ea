"""translate average: average several checkpoints of a run into one model."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from translate.cli.options import Options, PathOption
from translate.errors import UsageError
from translate.files import read_plain, write
from translate.names import on_demand
from translate.run_folder import LARGEST, configuration

log = logging.getLogger(__name__)

AVERAGE = "translate.extras.checkpoint_average:average_checkpoints"
CHOOSE = "translate.extras.checkpoint_average:choose"

USAGE = """\
  translate train experiment=demo run=runs/demo trainer.keep=10 trainer.validate_every=170
  translate average run=runs/demo checkpoints=last_5 output=runs/demo-last_5
  translate compare runs/demo runs/demo-last_5

Averages the weights of the checkpoints and writes a run folder with a bundle: every command but
train takes it as run=. With trainer.averaging (the default), each checkpoint is already an average
of weights, and so is the run's own bundle.
"""


def _names_checkpoints(value: str) -> str:
    if not re.fullmatch(r"(last|best)_[1-9][0-9]*", value):
        number = re.search(r"[1-9][0-9]*", value)
        count = number[0] if number else "5"
        raise ValueError(f"write last_{count} or best_{count}")
    return value


Choice = Annotated[str, AfterValidator(_names_checkpoints)]


class AverageOptions(Options):
    """The options of `translate average`."""

    needs_model: ClassVar[bool] = False
    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run, trained with trainer.keep")
    checkpoints: Choice = Field(
        "last_5", description="last_K, or best_K by dev BLEU, of those that were kept"
    )
    output: PathOption | None = Field(
        None,
        description="the folder of the result; default: the run's, then -last_K or -best_K",
    )


def run(options: AverageOptions) -> None:
    """Average the checkpoints and leave what other commands need."""
    folder, checkpoints = Path(options.run), options.checkpoints
    named = folder if folder.name not in ("", "..") else folder.resolve()  # run=. is called nothing
    output = Path(options.output or f"{named}-{checkpoints}")
    if output.exists():
        raise UsageError(f"output={output} exists: name another folder, or remove it first")
    which, _, count = checkpoints.partition("_")
    steps = on_demand(CHOOSE)(folder, count=int(count), best=which == "best")
    config = folder / "config.yaml"
    try:
        if configuration(folder):  # first: a bundle alone does not tell evaluate which corpus
            write(output / config.name, read_plain(config, largest=LARGEST))
        on_demand(AVERAGE)(folder, steps, output)
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)  # or it would be in the way of a second attempt
        raise
    log.info(
        "averaged the checkpoints of steps %s into %s",
        ", ".join(map(str, steps)),
        output / "bundle",
    )
