"""translate verify: a stored score, computed again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import PositiveInt

from translate import schema
from translate.cli.arguments import Arguments
from translate.cli.commands import Command, Job
from translate.cli.errors import UsageError, listed
from translate.cli.fields import Device, Node
from translate.errors import UserError

HELP = """\
translate verify: compute a stored score again, and say whether it is equal

  translate verify run=runs/demo                           # of the test sentences
  translate verify run=runs/demo data.split=dev
  translate verify run=runs/demo input=news.es reference=news.en

Reads evaluation/<split>.json, which translate evaluate has written, translates with the search that
stands there, and compares: model, sources and references by their SHA-256, translations and scores
to the last bit. Exit status 0 and a line that says so if all are equal; else 1 and what differs.
Other hardware or another version of PyTorch may differ in a few translations.

Keys:
  run            the folder of the run (required)
  data.split     test or dev; default test
  input          source sentences of your own that were evaluated, a line each, with
  reference      their translations, a line each
  data, tokenizer  the corpus; default: as stored (data.dir=PATH if it has moved)
  cache          the folder of downloads and prepared corpora
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, that are translated at once
"""


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.compose import launch
    from translate.cli.stored import training_config

    if "run" not in arguments.verbatim and not arguments.inspects:
        raise UsageError("run=PATH is missing: the folder that translate train wrote")
    trained = training_config(arguments.verbatim["run"]) if "run" in arguments.verbatim else {}
    nodes = {group: trained.get(group, {}) for group in ("data", "tokenizer")}
    launch(command, arguments, job, nodes=nodes)


def job(job: Job) -> None:
    """Check the configuration, then compare."""
    if found := schema.problems(run, job.config, ""):
        raise listed(found)
    run(job, **job.config)


def run(
    job: Job,
    *,
    data: Node,
    tokenizer: Node,
    cache: str,
    device: Device,
    tokens_per_batch: PositiveInt,
) -> None:
    """Translate and score again; a UserError lists what differs."""
    from translate.cli.stored import load_bundle, translator, unknown_words
    from translate.evaluation.verify import differences, read_stored
    from translate.inference import bundle

    folder = Path(job.verbatim["run"])
    loaded = load_bundle(str(folder))
    split, sources, references = _test_set(job, folder, data, tokenizer, Path(cache))
    stored = read_stored(folder / "evaluation", split)
    search = dict(stored["decoding"])
    replacing = unknown_words(search.pop("replace_unknown", False), search.pop("dictionary", None))
    model = translator(
        loaded, search=search, device=device,
        tokens_per_batch=tokens_per_batch, unknown_words=replacing,
    )  # fmt: skip
    checksums = json.loads((bundle.find(folder) / bundle.CHECKSUMS).read_text(encoding="utf-8"))
    sha256 = str(checksums[bundle.WEIGHTS])
    found = differences(stored, model, sources, references, model_sha256=sha256)
    if found:
        lines = "\n  ".join(found)
        raise UserError(f"{folder}/evaluation/{split}.json is not what comes out now:\n  {lines}")
    bleu = stored["bleu"]
    sys.stdout.write(
        f"equal: {split}, BLEU {bleu['score']:.2f} ({bleu['signature']}), {len(sources):,} "
        f"sentences, model {sha256[:12]}\n"
    )


def _test_set(
    job: Job, run: Path, data: Node, tokenizer: Node, cache: Path
) -> tuple[str, list[str], list[list[str]]]:
    """The name, the sources and the references of what was evaluated."""
    from translate.cli.stored import split_of_run
    from translate.cli.streams import line_pairs

    files = {"input", "reference"} & set(job.verbatim)
    if len(files) == 1:
        raise UsageError(f"{', '.join(files)}= alone: input= and reference= go together")
    if files:
        path = job.verbatim["input"]
        sources, references = line_pairs(path, job.verbatim["reference"])
        return Path(path).name.removesuffix(".gz"), sources, [[line] for line in references]
    table = split_of_run(run, data, tokenizer, cache)
    return data["split"], list(table["source"]), [list(item) for item in table["references"]]
