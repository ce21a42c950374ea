"""Files of `translate align`: sentences, gold links, and the error rate of the predicted links."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from translate.cli.arguments import Job, file_name
from translate.cli.stored import load_bundle, refuse_corpus
from translate.compose import key_of
from translate.data.pairs import in_order
from translate.data.text import Gold, Link, read_links, to_line
from translate.errors import UserError
from translate.evaluation.alignment import alignment_error_rate
from translate.evaluation.report import as_lines, digest, fingerprint, name_in
from translate.evaluation.test_sets import (
    SPLITS,
    corpus_of_run,
    is_own_corpus,
    name_of,
    parallel_lines,
)
from translate.files import write
from translate.wording import counted

log = logging.getLogger(__name__)

OPTIONS = ("target", "layer", "head", "method", "threshold")  # that links depend on


class Task(NamedTuple):
    """The sentences to align, with their gold links.

    `own`: whether its name is its own, and not the one of a split that others have.
    """

    name: str
    own: bool
    sources: Sequence[str]
    targets: Sequence[str]
    gold: Sequence[Gold] | None


def options_told(job: Job) -> list[str]:
    """The typed options for the names of files, so that they do not replace others' files.

    A sweep has a folder for what differs from job to job.
    """
    swept, given = (set(map(key_of, of)) for of in (job.swept, job.overrides))
    typed = [f"{key}={job.config[key]}" for key in OPTIONS if key in given - swept]
    typed += ["reverse"] if "reverse" in job.verbatim else []
    return [file_name(typed)] if typed else []


def models(job: Job) -> dict[str, str]:
    """SHA-256 of the weights that the links are read from."""
    named = {"model": "run", "reverse": "reverse"}
    return {
        what: load_bundle(job.verbatim[key]).weights_sha256
        for what, key in named.items()
        if key in job.verbatim
    }


def own_files(job: Job) -> Task | None:
    """The files `input=`, `reference=` and `gold=`; None where none are named."""
    if "input" not in job.verbatim:
        return None
    refuse_corpus(job)
    source = job.verbatim["input"]
    sources, (targets,) = parallel_lines(source, [job.verbatim["reference"]])
    gold = read_links(job.verbatim["gold"], sources, targets) if "gold" in job.verbatim else None
    name = name_of(source)
    return Task(name, name not in SPLITS, sources, targets, gold)


def split_of_run(job: Job, run: Path) -> Task:
    """The split `data.split` of a corpus, which keeps no links but sure ones."""
    data, split = job.config["data"], job.config["data"]["split"]
    _, table = corpus_of_run(
        run, split=split, data=data, tokenizer=job.config["tokenizer"], cache=job.config["cache"]
    )
    if "alignment" not in table.column_names:
        raise UserError(
            f"the corpus of {run} has no gold alignments: give input=FILE reference=FILE (and "
            "gold=FILE to score)"
        )
    sources, references, links = (
        list(in_order(table, name)) for name in ("source", "references", "alignment")
    )
    gold = [Gold(frozenset(map(tuple, each)), frozenset()) for each in links]
    targets = [first for first, *_ in references]
    return Task(split, is_own_corpus(run, data), sources, targets, gold)


def _fingerprints(task: Task) -> dict[str, str]:
    return {"sources": fingerprint(task.sources), "references": fingerprint(task.targets)}


def ending_of(task: Task, folder: Path) -> str:
    """The ending that keeps the files of these sentences apart from others of the same name."""
    texts, name = _fingerprints(task), f"{task.name}.alignment"
    return name_in(
        folder, name, own=task.own,
        sources_sha256=texts["sources"], references_sha256=texts["references"],
    ).removeprefix(name)  # fmt: skip


def score(
    task: Task,
    found: Sequence[frozenset[Link]],
    path: Path,
    options: dict[str, Any],
    models: Mapping[str, str],
) -> None:
    """Tell how good the links are, and keep the figures, with what they are about."""
    assert task.gold is not None
    scores = alignment_error_rate(
        [gold.sure for gold in task.gold], [gold.possible for gold in task.gold], found
    )
    counts = {
        "pairs": len(found),
        "links": sum(map(len, found)),
        "sure": sum(len(gold.sure) for gold in task.gold),
        "possible": sum(len(gold.possible) for gold in task.gold),
    }
    sha256 = {
        **models,
        **_fingerprints(task),
        "links": digest(as_lines([to_line(links) for links in found])),
        "gold": fingerprint([[sorted(gold.sure), sorted(gold.possible)] for gold in task.gold]),
    }
    command = shlex.join(["translate", *sys.argv[1:]])
    figures = asdict(scores) | counts | options | {"command": command, "sha256": sha256}
    # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
    write(path, (json.dumps(figures, indent=2) + "\n").encode())
    log.info(
        "AER %.4f, precision %.4f, recall %.4f (%s, %s; gold: %s sure, %s more possible); %s",
        scores.error_rate, scores.precision, scores.recall,
        counted(counts["pairs"], "pair"), counted(counts["links"], "link"),
        f"{counts['sure']:,}", f"{counts['possible']:,}", path,
    )  # fmt: skip
