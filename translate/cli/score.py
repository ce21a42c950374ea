"""translate score: how likely the model finds given translations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, PositiveInt

from translate.cli.options import DEVICE, TARGET, Device, Options, PathList, PathOption
from translate.errors import UserError
from translate.vocabulary import EOS
from translate.wording import counted

log = logging.getLogger(__name__)

USAGE = """\
  translate score run=runs/demo input=source.txt reference=translation.txt > scores.tsv

Writes a line with log-probability, tokens and perplexity for each pair, separated by tabs.
Logarithms are natural, tokens are the model's pieces including the end of the sentence, and
perplexity is exp(-log-probability / tokens). With tokens=true, two more columns hold the pieces and
the log-probability of each, separated by spaces, with the end of the sentence last. The totals of
all pairs go to standard error.
"""


class ScoreOptions(Options):
    """The options of `translate score`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    ensemble: PathList | None = Field(
        None, description="further runs, separated by commas, whose probabilities are averaged"
    )
    input: PathOption | None = Field(
        None, description="source sentences, one per line (required; .gz too)"
    )
    reference: PathOption | None = Field(
        None, description="their translations, one per line (required)"
    )
    output: PathOption | None = Field(
        None, description="a file for the scores; default: standard output"
    )
    target: str | None = Field(None, description=TARGET)
    device: Device = DEVICE
    tokens_per_batch: PositiveInt = Field(
        4096, description="tokens of the longer side, padding included, scored at once"
    )
    tokens: bool = Field(
        False, description="true: every piece with its log-probability, in two further columns"
    )

    def contradictions(self) -> Iterator[str]:
        from translate.cli.streams import output_problems

        for key in ("input", "reference"):
            if key not in self.verbatim:
                yield f"{key}=FILE is missing"
        yield from output_problems(self.verbatim)


def run(options: ScoreOptions) -> None:
    """Score every pair."""
    from translate.cli import streams
    from translate.evaluation.report import perplexity
    from translate.evaluation.test_sets import parallel_lines
    from translate.inference.translator import load

    assert options.input is not None
    assert options.reference is not None  # `contradictions` sees to both
    source = options.input
    sources, (references,) = parallel_lines(source, [options.reference])
    if not sources:
        raise UserError(f"{source} is empty: there is nothing to score")
    model = load(
        options.run, ensemble=options.ensemble or (), target=options.target,
        device=options.device, tokens_per_batch=options.tokens_per_batch,
    )  # fmt: skip
    target = model.tokenizers.target
    log_prob, count = 0.0, 0
    with streams.lines_out(options.verbatim) as write:
        for reference, score in zip(references, model.score(sources, references), strict=True):
            surprise = perplexity(score.log_prob, score.tokens)
            columns = [f"{score.log_prob:.6f}", str(score.tokens), f"{surprise:.4f}"]
            if options.tokens:
                ids = [*target.encode(reference), EOS]
                columns.append(" ".join(target.pieces(ids)))
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
