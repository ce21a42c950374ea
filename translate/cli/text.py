"""translate text: a line in, a line out."""

from __future__ import annotations

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import listed
from translate.cli.fields import Device, Node
from translate.inference.engines import Engine

HELP = """\
translate text: translate sentences, a file or standard input

  translate text run=runs/demo "¿Dónde está el tren?" "No sé qué decirte."
  translate text run=runs/demo < spanish.txt > english.txt
  translate text run=runs/demo input=spanish.txt output=english.txt search=beam search.beam_size=8
  translate text run=runs/demo search=beam search.n_best=3 "Hola."
  translate text run=runs/demo -- "x=1" "--dashes in front"

A line in, a line out, in order; an empty line stays empty. Input is UTF-8, plain or gzip; lines end
at \\n only. With scores=true or search.n_best above 1 a translation is a line of number, score and
text, separated by tabs.

Keys:
  run            the folder of the run (required)
  input, output  files; default standard input and output
  search         how to search; default: as stored in the run (translate models group=search)
  replace_unknown  true: in place of each <unk>, the source word it attends to most
  dictionary     with replace_unknown: a file of SOURCE<tab>TARGET lines, for words not to be copied
  engine         native, or ctranslate2: serves what translate export has written
  export         with engine=ctranslate2: the folder of the export; default: ctranslate2 in the run
  workers        with engine=ctranslate2: batches translated at once; default: one a core
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, that are translated at once
  interactive    true: answer each line before the next is read; default: only at a terminal
  scores         true: line numbers and scores in front
An argument that looks like KEY=VALUE and is no key is an error, not a sentence; after -- everything
is a sentence.
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import search_node

    launch(command, arguments, job, nodes={"search": search_node(arguments)})


def job(job: Job) -> None:
    """Check the configuration, then translate."""
    from translate.cli.engines import engine_problems
    from translate.cli.validation import search_problems

    found = schema.problems(run, job.config, "") or search_problems(job.config["search"])
    found = found or engine_problems(job)
    if found:
        raise listed(found)
    run(job, **job.config)


def run(
    job: Job,
    *,
    search: Node,
    device: Device,
    tokens_per_batch: PositiveInt,
    interactive: bool | None,
    scores: bool,
    engine: Engine,
    workers: PositiveInt | None,
    replace_unknown: bool,
) -> None:
    """Translate every line."""
    from translate.cli import streams
    from translate.cli.engines import engine_translator

    lines = streams.lines_in(job.verbatim, job.sentences)
    if interactive is None:
        interactive = streams.interactive(job.verbatim, job.sentences)
    translations = engine_translator(job).stream(lines, window=1 if interactive else None)
    numbered = scores or search.get("n_best", 1) > 1
    with streams.lines_out(job.verbatim, flush=interactive) as write:
        for number, best in enumerate(translations, start=1):
            for translation in best if numbered else best[:1]:
                front = f"{number}\t{translation.score:.4f}\t" if numbered else ""
                write(front + translation.text)
