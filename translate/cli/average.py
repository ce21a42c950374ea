"""translate average: average several checkpoints of a run into one model."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import UsageError, refuse
from translate.files import write

log = logging.getLogger(__name__)

HELP = """\
translate average: average several checkpoints of a run into one model

  translate train experiment=demo run=runs/demo trainer.keep=10 trainer.validate_every=170
  translate average run=runs/demo checkpoints=last_5 output=runs/demo-last_5
  translate compare runs/demo runs/demo-last_5

Averages the weights of the checkpoints and writes a run folder with a bundle: every command but
train takes it as run=. With trainer.averaging (the default), each checkpoint is already an average
of weights, and so is the run's own bundle.

Keys:
  run            the folder of the run, trained with trainer.keep (required)
  checkpoints    last_K, or best_K by dev BLEU, of those that were kept
  output         the folder of the result; default: the run's, with -last_K or -best_K appended
"""


def _names_checkpoints(value: str) -> str:
    if not re.fullmatch(r"(last|best)_[1-9][0-9]*", value):
        number = re.search(r"[1-9][0-9]*", value)
        count = number[0] if number else "5"
        raise ValueError(f"write last_{count} or best_{count}")
    return value


Choice = Annotated[str, AfterValidator(_names_checkpoints)]


def job(job: Job) -> None:
    """Check the configuration, then average."""
    refuse(schema.problems(run, job.config, ""))
    run(job, **job.config)


def run(job: Job, *, checkpoints: Choice) -> None:
    """Average the checkpoints and leave what other commands need."""
    from translate.training.checkpoint_average import average_checkpoints, choose

    folder = Path(job.verbatim["run"])
    named = folder if folder.name not in ("", "..") else folder.resolve()  # run=. is called nothing
    output = Path(job.verbatim.get("output", f"{named}-{checkpoints}"))
    if output.exists():
        raise UsageError(f"output={output} exists: name another folder, or remove it first")
    which, _, count = checkpoints.partition("_")
    steps = choose(folder, count=int(count), best=which == "best")
    config = folder / "config.yaml"
    try:
        if config.is_file():  # first: a bundle alone does not tell evaluate which corpus
            write(output / config.name, config.read_bytes())
        average_checkpoints(folder, steps, output)
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)  # or it would be in the way of a second attempt
        raise
    log.info(
        "averaged the checkpoints of steps %s into %s",
        ", ".join(map(str, steps)),
        output / "bundle",
    )
