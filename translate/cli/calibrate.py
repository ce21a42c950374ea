"""translate calibrate: how sure a translation is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt

from translate import config as schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import UsageError, refuse
from translate.cli.fields import Device, Folder, Node
from translate.errors import UserError
from translate.names import on_demand

CALIBRATE = "translate.extras.calibration:calibrate"

HELP = """\
translate calibrate: learn how reliable translations are, for translate text format=json

  translate calibrate run=runs/demo
  translate text run=runs/demo format=json "¿Dónde está el tren?"   # has "confidence"

Translates the dev sentences of the run's corpus and learns from their references how the mean
log-probability of a translation predicts the chance that it is good; then reports how accurate
that is on the test sentences: expected calibration error (over ten bins of equally many sentences),
Brier score, and Spearman's rank correlation with chrF. Writes confidence.json in the run, which is
valid for these weights and this search only: with others, no confidence is given. The confidence of
a line is that of its least certain sentence.

Keys:
  run            the folder of the run (required)
  good           the least sentence chrF at which a translation counts as good
  search         how to search; default: as stored in the run
  data, tokenizer  the corpus; default: as stored (data.dir=PATH if it has moved)
  cache          the folder of downloads and prepared corpora (default: data, or TRANSLATE_CACHE)
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, translated at once
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch

    if arguments.multirun:
        raise UsageError(
            "--multirun: a run has only one confidence.json: calibrate it once, without --multirun"
        )
    launch(command, arguments, job)


def job(job: Job) -> None:
    """Check the configuration, then learn and judge."""
    from translate.cli.validation import search_problems

    refuse(schema.problems(run, job.config, "") or search_problems(job.config["search"]))
    run(job, **job.config)


def run(
    job: Job,
    *,
    data: Node,
    tokenizer: Node,
    search: Node,
    cache: Folder,
    device: Device,
    tokens_per_batch: PositiveInt | None,
    good: Annotated[float, Field(gt=0, lt=100)],
) -> None:
    """Learn on dev, judge on test, and write what was learned."""
    from translate.cli.stored import corpus_of_run, load_bundle
    from translate.inference import confidence
    from translate.inference.translator import load

    folder = Path(job.verbatim["run"])
    bundle = load_bundle(str(folder))
    corpus, dev = corpus_of_run(folder, job.config, "dev")
    if corpus.test is None:
        raise UserError(
            f"confidence is tested on test sentences, but the corpus of {folder} has none: choose "
            "a corpus that has some with data="
        )
    model = load(bundle, search=search, device=device, tokens_per_batch=tokens_per_batch)
    learned, judged = on_demand(CALIBRATE)(
        model, dev, corpus.test, good=good, weights_sha256=bundle.weights_sha256, search=search
    )
    confidence.write(folder, learned)
    sys.stdout.write(
        f"learned from {len(dev):,} dev sentences; good means chrF {good:g} or more\n"
        f"of {judged.sentences:,} test sentences, {judged.good:.1%} are good; "
        f"{judged.expected:.1%} were expected\n"
        f"expected calibration error {judged.calibration_error:.1%}; Brier score "
        f"{judged.brier:.3f}, against {judged.brier_of_share:.3f} for the overall share alone; "
        f"rank correlation with chrF {judged.rank_correlation:.3f}\n"
    )
