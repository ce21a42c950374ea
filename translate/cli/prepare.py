"""translate prepare: a corpus, cleaned, split and tokenised."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from translate.cli.arguments import Arguments, Job
from translate.cli.options import CACHE, Folder, Group, Options, PathOption
from translate.cli.streams import lines_out, output_problems
from translate.config import problems
from translate.data.cleaning import Dropped, Tell
from translate.data.plain_text import json_line, unpacked_name
from translate.nodes import group_problems

REPORT = "translate.extras.corpus_report:render"

if TYPE_CHECKING:
    from translate.cli.main import Command
    from translate.data.corpus import Corpus
    from translate.data.sources import Source

EXAMPLES = 3  # of each modifier
USAGE = """\
  translate prepare                                        # Spanish to English, from Tatoeba
  translate prepare data=tatoeba_es_en data.source=en data.target=es
  translate prepare data=files data.dir=my/corpus data.source=de data.target=en
  translate prepare data=multi30k_en_de dropped=dropped.tsv
  translate prepare data=toy
  translate prepare data=toy data.modifiers.upper=0.05 data.modifiers.typos=0.05 show=modifiers
  translate prepare 'data.extra={back: {source: mono.es, target: mono.en, weight: 0.5, tag: bt}}'

Prints what looks suspicious in the first lines (translate doctor shows those lines and examines
the rest), what was kept, what was dropped and by which rule, and how the corpus was split. The
result is cached under a hash of text, tokenizer and settings: a second call, and translate train
with the same settings, reuse it. You need not run this before training; it lets you look at the
data first.

With dropped=FILE, FILE lists every training pair that was dropped, as many as are printed: the
rule; the corpus, main or a name of data.extra; the line, from 1, as translate doctor counts it;
source and target as the rules saw them, after data.cleaning.replace and with white space made one
space; and of a duplicate the line that it repeats. For a corpus that is prepared already, the text
is read and cleaned again for this; the prepared corpus stays as it is.
"""


class PrepareOptions(Options):
    """The options of `translate prepare`, whose configuration Hydra composes."""

    usage: ClassVar[str] = USAGE

    data: Annotated[Any, Group("tatoeba_es_en")] = Field(
        None,
        description="which corpus, and its settings (translate models group=data lists corpora)",
    )
    tokenizer: Annotated[Any, Group("unigram")] = Field(
        None, description="how sentences are cut into pieces (translate models group=tokenizer)"
    )
    dropped: PathOption | None = Field(
        None,
        description="a file to list the dropped training pairs in: tab-separated with a header "
        "line, or JSON lines if it ends with .jsonl (.gz, .xz, .bz2 or .zst after it packs); "
        "default: none",
    )
    show: Literal["modifiers"] | None = Field(
        None, description="modifiers: print examples of pairs as data.modifiers changes them"
    )
    cache: Folder = CACHE


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.composing import launch

    def check(config: Mapping[str, Any]) -> list[str]:
        options = problems(PrepareOptions, {key: config[key] for key in ("cache", "show")}, "")
        nodes = group_problems(config, ("data", "tokenizer"))
        return [*options, *nodes, *_dropped_problems(arguments.verbatim)]

    launch(command, arguments, job, check=check)


def job(job: Job) -> None:
    """Prepare the corpus, print the account of it and perhaps list what was dropped."""
    from translate.data.corpus import prepare, read_nodes
    from translate.names import on_demand

    data, tokenizer = read_nodes(job.config["data"], job.config["tokenizer"])
    with _listed(job.verbatim) as tell:
        corpus = prepare(data, tokenizer, cache=Path(job.config["cache"]), tell=tell)
    account = on_demand(REPORT)(corpus.report)
    sys.stdout.write(f"{account}\nPrepared corpus: {corpus.folder}\n")
    if tell is not None:
        sys.stdout.write(f"Dropped pairs: {job.verbatim['dropped']}\n")
    if job.config["show"] is not None:
        sys.stdout.writelines(_examples(corpus, data))


def _examples(corpus: Corpus, data: Source) -> Iterator[str]:
    """Yield lines with the first pairs that each modifier changes, before and after."""
    from translate.data.modifiers import Modified

    parts = [(part.pairs, corpus.tokenizers) for part in corpus.parts]
    modified = Modified(
        data.modifiers, corpus.train, parts, max_length=data.max_length, seed=data.seed
    )
    if not modified:
        yield "no modifier has a share: try data.modifiers.upper=0.05 data.modifiers.signs=0.1\n"
    for name, examples in modified.examples(EXAMPLES).items():
        for before, after in examples:
            yield f"\n{name}\n"
            for side in ("source", "target"):
                yield f"  {getattr(before, side)}\n  → {getattr(after, side)}\n"


def _dropped_problems(verbatim: Mapping[str, str]) -> list[str]:
    """Return the reasons not to write to `dropped=`, one line each, before any text is read."""
    name = verbatim.get("dropped", "dropped")
    if name in ("-", "/dev/stdout"):
        return [f"dropped={name} is standard output, where the report goes: name a file"]
    if _kind(name) not in ("", ".tsv", ".jsonl"):
        return [f"dropped={name} ends with {_kind(name)}: name it .tsv or .jsonl (or with .gz)"]
    return output_problems(verbatim, "dropped")


@contextmanager
def _listed(verbatim: Mapping[str, str]) -> Iterator[Tell | None]:
    """Yield what writes a pair to `dropped=`; None without the key.

    No text has a tab or a line end of any kind: it is tidy, and so a cell needs no quotes.
    """
    if "dropped" not in verbatim:
        yield None
        return
    as_json = _kind(verbatim["dropped"]) == ".jsonl"
    with lines_out({"output": verbatim["dropped"]}) as write:

        def tell(pair: Dropped) -> None:
            cells = ("" if cell is None else str(cell) for cell in pair)
            write(json_line(pair._asdict()) if as_json else "\t".join(cells))

        if not as_json:
            write("\t".join(Dropped._fields))
        yield tell


def _kind(name: str) -> str:
    """Return the ending that says how to write a list, packed or not."""
    return Path(unpacked_name(name)).suffix.lower()
