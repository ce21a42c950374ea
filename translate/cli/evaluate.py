"""translate evaluate: how good the translations are."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import UsageError, listed
from translate.cli.fields import Device, Node
from translate.inference.engines import Engine

HELP = """\
translate evaluate: BLEU, chrF and TER on a split or on files

  translate evaluate run=runs/demo                         # the test sentences of its corpus
  translate evaluate run=runs/demo data.split=dev search=beam search.beam_size=8
  translate evaluate run=runs/demo input=news.es reference=news.en

Scores are sacreBLEU's, on detokenised text with every reference, each with the signature that
repeats it; a table by source length follows. Translations and figures are kept in
evaluation/<split>.hyp and evaluation/<split>.json of the run.

Keys:
  run            the folder of the run (required)
  ensemble       further runs, separated by commas, whose probabilities are averaged with its own
  data.split     test or dev; default test
  input          source sentences of your own, a line each, with
  reference      their translations, a line each
  output         the folder of the two files; default: evaluation/ in the run
  search         how to search; default: as stored in the run
  mbr            chrf or bleu: of search.n_best translations, the one most like all of them
  replace_unknown  true: in place of each <unk>, the source word it attends to most
  dictionary     with replace_unknown: a file of SOURCE<tab>TARGET lines, for words not to be copied
  data, tokenizer  the corpus; default: as stored (data.dir=PATH if it has moved)
  cache          the folder of downloads and prepared corpora
  engine         native, or ctranslate2: serves what translate export has written
  export         with engine=ctranslate2: the folder of the export; default: ctranslate2 in the run
  workers        with engine=ctranslate2: batches translated at once; default: one a core
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, that are translated at once
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import search_node, training_config

    nodes = {"search": search_node(arguments)}
    trained = training_config(arguments.verbatim["run"]) if "run" in arguments.verbatim else {}
    nodes |= {group: trained.get(group, {}) for group in ("data", "tokenizer")}
    launch(command, arguments, job, nodes=nodes)


def job(job: Job) -> None:
    """Check the configuration, then translate and score."""
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
    data: Node,
    tokenizer: Node,
    search: Node,
    cache: str,
    device: Device,
    tokens_per_batch: PositiveInt,
    engine: Engine,
    workers: PositiveInt | None,
    replace_unknown: bool,
    mbr: Literal["chrf", "bleu"] | None,
) -> None:
    """Translate a test set and print its figures."""
    from rich.console import Console

    from translate.cli.engines import engine_translator
    from translate.cli.stored import load_bundle
    from translate.data.progress import progress
    from translate.evaluation.report import render
    from translate.evaluation.run import evaluate_split

    folder, dictionary = Path(job.verbatim["run"]), job.verbatim.get("dictionary")
    if {"input", "reference"} & set(job.verbatim):
        split, sources, references = _own_files(
            job.verbatim.get("input"), job.verbatim.get("reference")
        )
    else:
        split = data["split"]
        sources, references = _split_of_run(folder, data, tokenizer, Path(cache))
    model = engine_translator(job)
    with progress("translating", total=len(sources)) as advance:
        report = evaluate_split(
            model,
            sources,
            references,
            folder=Path(job.verbatim.get("output", folder / "evaluation")),
            split=split,
            command=shlex.join(["translate", *sys.argv[1:]]),
            decoding={
                **search,
                "engine": engine,
                "replace_unknown": replace_unknown,
                "dictionary": dictionary,
                "mbr": mbr,
                "ensemble": job.verbatim.get("ensemble"),
            },
            model_sha256=load_bundle(str(folder)).weights_sha256,
            progress=lambda done: advance(1),
        )
    Console().print(render(report))


def _own_files(source: str | None, reference: str | None) -> tuple[str, list[str], list[list[str]]]:
    """The name, the sources and the references of a test set in two files."""
    from translate.cli.streams import line_pairs

    if source is None or reference is None:
        missing = "reference" if source else "input"
        raise UsageError(f"{missing}=FILE is missing: input= and reference= go together")
    sources, references = line_pairs(source, reference)
    return Path(source).name.removesuffix(".gz"), sources, [[line] for line in references]


def _split_of_run(
    run: Path, data: Node, tokenizer: Node, cache: Path
) -> tuple[list[str], list[list[str]]]:
    """Sources and references of the split `data.split` of the corpus the run was trained on."""
    from translate.cli.stored import split_of_run

    table = split_of_run(run, data, tokenizer, cache)
    return list(table["source"]), [list(item) for item in table["references"]]
