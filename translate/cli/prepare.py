"""translate prepare: a corpus, cleaned, split and tokenised."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.fields import Folder, Node
from translate.cli.validation import corpus_problems

HELP = """\
translate prepare: fetch a corpus, clean it, split it, train its tokenizer

  translate prepare                                        # Spanish to English, from Tatoeba
  translate prepare data=tatoeba_es_en data.source=en data.target=es
  translate prepare data=files data.dir=my/corpus data.source=de data.target=en
  translate prepare data=toy
  translate prepare 'data.extra={back: {source: mono.es, target: mono.en, weight: 0.5, tag: bt}}'

Prints what looks suspicious in the first lines (translate doctor shows those lines and examines
the rest), what was kept, what was dropped and by which rule, and how the corpus was split. The
result is cached under a hash of text, tokenizer and settings: a second call, and translate train
with the same settings, reuse it. You need not run this before training; it lets you look at the
data first.

Keys:
  data           which corpus, and every setting of it (translate models group=data lists them)
  tokenizer      how sentences are cut into pieces (translate models group=tokenizer)
  cache          the folder of downloads and prepared corpora (default: data, or TRANSLATE_CACHE)
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch

    launch(command, arguments, job, check=partial(corpus_problems, run))


def job(job: Job) -> None:
    """Prepare."""
    run(**job.config)


def run(*, data: Node, tokenizer: Node, cache: Folder) -> None:
    """Prepare the corpus and print the account of it."""
    from translate.data.account import render
    from translate.data.corpus import prepare

    corpus = prepare(data, tokenizer, cache=Path(cache))
    sys.stdout.write(f"{render(corpus.report)}\nPrepared corpus: {corpus.folder}\n")
