"""translate shortlist: which words translate which."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field, PositiveInt

from translate.cli.options import CorpusOptions, PathOption
from translate.files import refuse_links
from translate.names import on_demand

LEARN = "translate.extras.lexical_shortlist:learn_from_corpus"
FILE = "shortlist.safetensors"
log = logging.getLogger(__name__)

USAGE = """\
  translate shortlist run=runs/demo
  translate text run=runs/demo shortlist=runs/demo/shortlist.safetensors < spanish.txt

Learns from the training pairs of the run which target pieces translate each source piece (IBM
Model 1). With that file, each sentence is translated with only its likely pieces: the most frequent
ones and those of its own source pieces. The output layer is then computed for these candidates
only, which pays off with large vocabularies (docs/benchmarks/decoding.md). Scores and probabilities
are relative to the candidates, and other words cannot be written.
"""


class ShortlistOptions(CorpusOptions):
    """The options of `translate shortlist`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    output: PathOption | None = Field(
        None, description="the file; default: shortlist.safetensors in the run"
    )
    frequent: PositiveInt = Field(
        1000,
        description="how many of the most frequent target pieces are candidates for every sentence",
    )
    likeliest: PositiveInt = Field(
        20,
        description="how many translations of each of its source pieces are candidates too",
    )

    def contradictions(self) -> Iterator[str]:
        from translate.cli.streams import output_problems

        yield from output_problems(self.verbatim)


def run(options: ShortlistOptions) -> None:
    """Learn from the training pairs, and write what was learned."""
    from translate.evaluation.test_sets import corpus_of_run
    from translate.inference.bundle import of_run

    folder = Path(options.run)
    if options.output is None:
        refuse_links(folder, FILE)
    corpus, _ = corpus_of_run(
        folder, split="dev", data=options.data, tokenizer=options.tokenizer, cache=options.cache
    )
    path = Path(options.output or folder / FILE)
    tokenizers = of_run(folder).tokenizers
    pairs = on_demand(LEARN)(
        corpus, tokenizers, path,
        run=folder, frequent=options.frequent, likeliest=options.likeliest,
    )  # fmt: skip
    log.info("%s: learned from %d pairs", path, pairs)
