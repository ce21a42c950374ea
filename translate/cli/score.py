"""translate score: how likely the model finds given translations."""

from __future__ import annotations

import logging

from pydantic import PositiveInt

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import refuse
from translate.cli.fields import Device
from translate.errors import UserError
from translate.vocabulary import EOS
from translate.wording import counted

log = logging.getLogger(__name__)

HELP = """\
translate score: compute log-probability and perplexity of given translations

  translate score run=runs/demo input=source.txt reference=translation.txt > scores.tsv

Writes a line with log-probability, tokens and perplexity for each pair, separated by tabs.
Logarithms are natural, tokens are the model's pieces including the end of the sentence, and
perplexity is exp(-log-probability / tokens). With tokens=true, two more columns hold the pieces and
the log-probability of each, separated by spaces, with the end of the sentence last. The totals of
all pairs go to standard error.

Keys:
  run            the folder of the run (required)
  ensemble       further runs, separated by commas, whose probabilities are averaged with its own
  input          source sentences, one per line (required; .gz too)
  reference      their translations, one per line (required)
  output         a file for the scores; default standard output
  target         of a multilingual run: the tag of the language that the references are in
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  tokens of the longer side, padding included, scored at once
  tokens         true: every piece with its log-probability
"""


def job(job: Job) -> None:
    """Check the configuration, then score."""
    from translate.cli.stored import load_bundle
    from translate.cli.streams import output_problems

    load_bundle(job.verbatim["run"])  # a missing run is told before a missing file
    found = schema.problems(run, job.config, "")
    found += [f"{key}=FILE is missing" for key in ("input", "reference") if key not in job.verbatim]
    found += output_problems(job.verbatim)
    refuse(found)
    run(job, **job.config)


def run(
    job: Job,
    *,
    target: str | None,
    device: Device,
    tokens_per_batch: PositiveInt,
    tokens: bool,
) -> None:
    """Score every pair."""
    from translate.cli import streams
    from translate.cli.stored import load_runs
    from translate.evaluation.likelihood import perplexity
    from translate.inference.translator import load

    source = job.verbatim["input"]
    sources, references = streams.line_pairs(source, job.verbatim["reference"])
    if not sources:
        raise UserError(f"{source} is empty: there is nothing to score")
    bundle = load_runs(job.verbatim, target)
    model = load(bundle, device=device, tokens_per_batch=tokens_per_batch)
    log_prob, count = 0.0, 0
    with streams.lines_out(job.verbatim) as write:
        for reference, score in zip(references, model.score(sources, references), strict=True):
            surprise = perplexity(score.log_prob, score.tokens)
            columns = [f"{score.log_prob:.6f}", str(score.tokens), f"{surprise:.4f}"]
            if tokens:
                ids = [*bundle.tokenizers.target.encode(reference), EOS]
                columns.append(" ".join(bundle.tokenizers.target.pieces(ids)))
                columns.append(" ".join(f"{one:.6f}" for one in score.token_log_probs))
            write("\t".join(columns))
            log_prob, count = log_prob + score.log_prob, count + score.tokens
    log.info(
        "%s, %s, log-probability %.4f, perplexity %.4f",
        counted(len(sources), "pair"),
        counted(count, "token"),
        log_prob,
        perplexity(log_prob, count),
    )
