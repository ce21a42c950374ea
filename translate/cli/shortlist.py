"""translate shortlist: which words translate which."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import PositiveInt

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import refuse
from translate.cli.fields import Folder, Node
from translate.names import on_demand

LEARN = "translate.extras.lexical_shortlist:learn_from_corpus"
log = logging.getLogger(__name__)

HELP = """\
translate shortlist: learn which words translate which, to speed up the search

  translate shortlist run=runs/demo
  translate text run=runs/demo shortlist=runs/demo/shortlist.safetensors < spanish.txt

Learns from the training pairs of the run which target pieces translate each source piece (IBM
Model 1). With that file, each sentence is translated with only its likely pieces: the most frequent
ones and those of its own source pieces. The output layer is then computed for these candidates
only, which pays off with large vocabularies (docs/benchmarks/decoding.md). Scores and probabilities
are relative to the candidates, and other words cannot be written.

Keys:
  run            the folder of the run (required)
  output         the file; default: shortlist.safetensors in the run; in a sweep (--multirun)
                 its name says what differs between jobs
  frequent       how many of the most frequent target pieces are candidates for every sentence
  likeliest      how many translations of each of its source pieces are candidates too
  data, tokenizer  the corpus; default: as stored (data.dir=PATH if it has moved)
  cache          the folder of downloads and prepared corpora (default: data, or TRANSLATE_CACHE)
"""


def job(job: Job) -> None:
    """Check the configuration, then learn."""
    from translate.cli.streams import output_problems

    refuse(schema.problems(run, job.config, "") + output_problems(job.verbatim))
    run(job, **job.config)


def run(
    job: Job,
    *,
    data: Node,
    tokenizer: Node,
    cache: Folder,
    frequent: PositiveInt,
    likeliest: PositiveInt,
) -> None:
    """Learn from the training pairs, and write what was learned."""
    from translate.cli.stored import corpus_of_run, load_bundle

    folder = Path(job.verbatim["run"])
    corpus, _ = corpus_of_run(folder, job.config, "dev")
    path = Path(job.verbatim.get("output", folder / f"{job.name('shortlist')}.safetensors"))
    tokenizers = load_bundle(str(folder)).tokenizers
    pairs = on_demand(LEARN)(
        corpus, tokenizers, path, run=folder, frequent=frequent, likeliest=likeliest
    )
    log.info("%s: learned from %d pairs", path, pairs)
