"""translate score: how likely the model finds given translations."""

from __future__ import annotations

import logging

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import listed
from translate.cli.fields import Device
from translate.errors import UserError

log = logging.getLogger(__name__)

HELP = """\
translate score: log-probability and perplexity of given translations

  translate score run=runs/demo input=source.txt reference=translation.txt > scores.tsv

For each pair a line of log-probability, tokens and perplexity, separated by tabs. Logarithms are
natural, tokens are the model's pieces with the end of the sentence, and perplexity is
exp(-log-probability / tokens). The totals of all pairs go to standard error.

Keys:
  run            the folder of the run (required)
  input          source sentences, a line each (required; .gz too)
  reference      their translations, a line each (required)
  output         a file for the scores; default standard output
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, that are scored at once
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import search_node

    search_node(arguments)  # a missing run is told before a missing file
    launch(command, arguments, job)


def job(job: Job) -> None:
    """Check the configuration, then score."""
    found = schema.problems(run, job.config, "")
    found += [f"{key}=FILE is missing" for key in ("input", "reference") if key not in job.verbatim]
    if found:
        raise listed(found)
    run(job, **job.config)


def run(job: Job, *, device: Device, tokens_per_batch: PositiveInt) -> None:
    """Score every pair."""
    from translate.cli import streams
    from translate.cli.stored import load_bundle, translator
    from translate.evaluation.likelihood import perplexity

    source, reference = job.verbatim["input"], job.verbatim["reference"]
    sources, references = streams.line_pairs(source, reference)
    if not sources:
        raise UserError(f"{source} is empty: there is nothing to score")
    bundle = load_bundle(job.verbatim["run"])
    model = translator(
        bundle, search=bundle.config.search, device=device, tokens_per_batch=tokens_per_batch
    )
    log_prob, tokens = 0.0, 0
    with streams.lines_out(job.verbatim) as write:
        for score in model.score(sources, references):
            surprise = perplexity(score.log_prob, score.tokens)
            write(f"{score.log_prob:.6f}\t{score.tokens}\t{surprise:.4f}")
            log_prob, tokens = log_prob + score.log_prob, tokens + score.tokens
    log.info(
        "%d pairs, %d tokens, log-probability %.4f, perplexity %.4f",
        len(sources),
        tokens,
        log_prob,
        perplexity(log_prob, tokens),
    )
