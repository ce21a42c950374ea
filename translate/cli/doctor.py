"""translate doctor: find what may be wrong with a corpus."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, NonNegativeInt

from translate.cli.arguments import Arguments, Job
from translate.cli.options import CACHE, Folder, Group, Options, PathOption, TextOption
from translate.config import problems
from translate.errors import UsageError, UserError
from translate.names import on_demand
from translate.nodes import group_problems

if TYPE_CHECKING:
    from translate.cli.main import Command

FINDINGS = (
    "unreadable", "empty", "copy", "duplicate", "overlap", "dev_overlap", "near_overlap",
    "characters", "quoted", "length", "other_side", "shifted", "swapped", "stray", "language",
)  # fmt: skip
DIAGNOSE = "translate.extras.doctor:diagnose"
USAGE = """\
  translate doctor data=files data.dir=my/corpus data.source=de data.target=en
  translate doctor data=multi30k_en_de json=findings.json lines=20
  translate doctor data=multi30k_en_de fail_on=duplicate,empty,shifted

Reads the text as it is, before cleaning, and lists suspicious lines: rows of tables that cannot be
read, empty sides, copies of the
source, repeated pairs, training text that is also in dev or test (exactly or nearly), test text in
dev, strange characters, quoted cells, lengths that do not match, sides in the wrong language,
blocks of translations shifted against their sources, swapped neighbours, and translations of
something else. A corpus of data.extra is examined likewise, as extra.NAME; one with a tag may be
in any language. Then it reports how many dev words are unseen in training, and suggests a length
limit and a vocabulary size: the largest of 1,000, 2,000, … 32,000 at which 95 % of the pieces
(single letters aside) occur 100 times or more; if there is none, 1,000, with the share of pieces
that do. Its findings deserve a look but are not always mistakes. Where pairs are lines of files,
line numbers are those of the files, header included. To find sides in another language,
install py3langid. With fail_on= the command fails where there are findings that it names, of
{findings}.
""".replace("{findings}", textwrap.fill(", ".join(FINDINGS), 98))


class DoctorOptions(Options):
    """The options of `translate doctor`, whose configuration Hydra composes."""

    usage: ClassVar[str] = USAGE

    data: Annotated[Any, Group("tatoeba_es_en")] = Field(
        None,
        description="which corpus, and its settings (translate models group=data lists corpora)",
    )
    tokenizer: Annotated[Any, Group("unigram")] = Field(
        None, description="the kind of vocabulary to suggest (translate models group=tokenizer)"
    )
    json_file: PathOption | None = Field(
        None, alias="json", description="a file to write all findings to, with all their lines"
    )
    fail_on: TextOption | None = Field(
        None,
        description="findings that end the command with status 1, by their names in json=, such "
        "as duplicate,empty; any: whatever is found",
    )
    lines: NonNegativeInt = Field(5, description="how many lines of each finding to show")
    cache: Folder = CACHE


def main(command: Command, arguments: Arguments) -> None:
    """Run the command."""
    from translate.cli.composing import launch

    def check(config: Mapping[str, Any]) -> list[str]:
        plain = {key: config[key] for key in ("cache", "lines")}
        nodes = group_problems(config, ("data", "tokenizer"))
        return [*problems(DoctorOptions, plain, ""), *nodes]

    launch(command, arguments, job, check=check)


def job(job: Job) -> None:
    """Examine the corpus, print the findings and perhaps keep them."""
    from translate.data.corpus import read_nodes
    from translate.data.progress import progress
    from translate.files import check_file, write

    if "json" in job.verbatim:
        check_file(Path(job.verbatim["json"]))
    fatal = fatal_findings(job.verbatim.get("fail_on", ""))
    nodes = read_nodes(job.config["data"], job.config["tokenizer"])
    with progress("reading and examining"):
        diagnosis = on_demand(DIAGNOSE)(*nodes, Path(job.config["cache"]))
    if "json" in job.verbatim:
        text = json.dumps(diagnosis.as_json(), ensure_ascii=False, indent=2)
        write(Path(job.verbatim["json"]), f"{text}\n".encode("utf-8", "replace"))
    sys.stdout.write("".join(f"{line}\n" for line in diagnosis.report(lines=job.config["lines"])))
    if diagnosis.problem:
        raise diagnosis.problem
    if there := [each.check for each in diagnosis.findings if each.check in fatal]:
        raise UserError(f"fail_on: there are findings of the kinds {', '.join(there)}")


def fatal_findings(names: str) -> Sequence[str]:
    """Return the findings that are named, with commas between them; `any` is each of them.

    Raises:
        UsageError: there is no such finding.
    """
    fatal = [name.strip() for name in names.split(",") if name.strip()]
    for name in fatal:
        if name not in (*FINDINGS, "any"):
            raise UsageError(f"fail_on = {name}: choose from any, {', '.join(FINDINGS)}")
    return FINDINGS if "any" in fatal else fatal
