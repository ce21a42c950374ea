"""What `evaluate`, `compare` and `verify` share: a test set, and a run's evaluation on it."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from translate.cli.arguments import paths_in
from translate.cli.commands import Job, shortened
from translate.cli.engines import export_folder
from translate.cli.errors import UsageError
from translate.cli.fields import Node
from translate.cli.stored import SPLITS, corpus_of_run, load_bundle, names_a_corpus, refuse_corpus
from translate.cli.streams import name_of, parallel_lines
from translate.data.corpus import load
from translate.data.pairs import in_order
from translate.data.progress import progress
from translate.data.text import read_lines, sameness
from translate.errors import UserError
from translate.evaluation.alignment import WordAttention, word_attention
from translate.evaluation.comparison_caveats import search_differences
from translate.evaluation.report import Report, fingerprint, read
from translate.evaluation.report_page import report_page
from translate.evaluation.run import Judging, TestSet, evaluate_split
from translate.evaluation.slices import word_counts
from translate.files import check_folder, file_hash
from translate.inference.forcing import MAX_LENGTH
from translate.inference.translator import Translator
from translate.models.head import attends
from translate.plots.curves import read_curves
from translate.training import provenance

log = logging.getLogger(__name__)

# beside the search, the keys that say how a test set is translated: values, and names of files
OPTIONS = ("target", "engine", "precision", "replace_unknown", "mbr")
FILES = ("dictionary", "ensemble", "export", "shortlist")
WIDE = 10_000  # characters: no line of a table or a verdict is as long


def read_test_set(job: Job, run: Path) -> TestSet:
    """The files `input=`, `reference=` and `domains=`, else the split `data.split` of the run.

    Raises:
        UserError: neither can be had, or both are named, line counts differ, or there are no lines.
    """
    if {"input", "reference"} & set(job.verbatim):
        refuse_corpus(job)
        found = _own_files(job.verbatim.get("input"), job.repeated.get("reference", ()))
    else:
        found = _split(job, run)
    if "domains" in job.verbatim:
        found = replace(found, domains=list(read_lines(job.verbatim["domains"])))
    found.check()
    return found


def _own_files(source: str | None, references: Sequence[str]) -> TestSet:
    if source is None or not references:
        missing = "reference" if source else "input"
        raise UsageError(f"{missing}=FILE is missing: input= and reference= go together")
    sources, others = parallel_lines(source, references)
    items = [_given(item) for item in zip(*others, strict=True)]
    pairs = zip(sources, items, strict=True)
    if blank := sum(bool(text.strip()) and not item[0].strip() for text, item in pairs):
        log.warning(
            "%s of %s sentences have a blank reference, which counts as a reference of length 0",
            f"{blank:,}", f"{len(sources):,}",
        )  # fmt: skip
    name = shortened(name_of(source))
    return TestSet(name, sources, items, own=name not in SPLITS)


def _given(references: Sequence[str]) -> Sequence[str]:
    """Those of an item that are not blank: not every one has as many; the first where all are."""
    return [text for text in references if text.strip()] or references[:1]


def _split(job: Job, run: Path) -> TestSet:
    data, trained_on_it = job.config["data"], not names_a_corpus(job)
    corpus, table = corpus_of_run(run, job.config, data["split"])
    by_domain = data.get("domain") is not None and "group" in table.column_names
    return TestSet(
        data["split"],
        list(in_order(table, "source")),
        list(in_order(table, "references")),
        domains=list(in_order(table, "group")) if by_domain else None,
        word_counts=word_counts(in_order(corpus.train, "source")) if trained_on_it else None,
        own=trained_on_it,
    )


def seen_in_training(run: str, sources: Sequence[str], cache: str) -> int:
    """How many of the sources are in a run's training text, as far as that is still prepared.

    Of a split of the run's own corpus none is, unless data.allow_overlap=true asked for it.
    """
    corpus = provenance.noted(Path(run), "corpus") or {}
    folder = Path(cache).expanduser() / "corpora" / corpus.get("corpus", "")
    if not corpus or not folder.is_dir():
        return 0
    asked = list(map(sameness, sources))
    known = set(asked).intersection(map(sameness, in_order(load(folder).train, "source")))
    return sum(map(known.__contains__, asked))


def evaluate_run(
    run: Path,
    translator: Translator,
    test_set: TestSet,
    *,
    folder: Path,
    command: Sequence[str],
    decoding: Node,
    judging: Judging,
    shown: int,
    attention: Sequence[int],
) -> Report:
    """Translate, score, and leave the files of an evaluation in `folder`.

    Args:
        command: the arguments that repeat it.
        shown: how many of the worst and the best sentences the page has.
        attention: the lines, from 1, whose attention the page shows.
    """
    metrics = run / "metrics.csv"
    curves = read_curves(metrics) if metrics.is_file() else {}  # a fault is told before the work
    beyond = [line for line in attention if line > len(test_set.sources)]
    if beyond:
        raise UserError(
            f"attention = {beyond[0]} is not a line of {test_set.split}, which has "
            f"{len(test_set.sources):,}"
        )
    check_output(folder)
    placed = test_set.placed(folder)
    if placed.split != test_set.split:
        log.warning(
            "%s.json already belongs to other sentences: this evaluation is named %s",
            folder / test_set.split, placed.split,
        )  # fmt: skip
    _tell_replaced(folder, placed.split, decoding)

    def page(report: Report, test_set: TestSet, hypotheses: Sequence[str]) -> str:
        drawn = _attention(translator, test_set, hypotheses, attention)
        return report_page(
            report, test_set, hypotheses,
            run=str(run), curves=curves, attention=drawn, shown=shown,
        )  # fmt: skip

    with progress(f"translating with {run.name}", total=len(test_set.sources)) as advance:
        return evaluate_split(
            translator,
            placed,
            folder=folder,
            command=shlex.join(["translate", *command]),
            decoding=decoding,
            model_sha256=load_bundle(str(run)).weights_sha256,
            judging=judging,
            read_sha256=read_sha256(run, decoding),
            progress=lambda done: advance(1),
            page=page,
        )


def check_output(folder: Path) -> None:
    """See that files can be made in a folder, which `output=` names or could name.

    Raises:
        UserError: none can.
    """
    try:
        check_folder(folder)
    except UserError as error:
        raise UserError(f"{error}, with output=") from error


def _tell_replaced(folder: Path, split: str, decoding: Mapping[str, Any]) -> None:
    """A stored evaluation of another search, which `compare` would have used, is not kept."""
    try:
        stored = read(folder, split)
    except UserError:  # nothing would have used it
        return
    if stored and (found := search_differences([stored.decoding, decoding])):
        log.warning(
            "this replaces %s, which was made otherwise: %s; another output= keeps both",
            folder / f"{split}.json",
            ", ".join(f"{key} {' → '.join(values)}" for key, values in found.items()),
        )


def show(tables: RenderableType) -> None:
    """Print tables, as wide as the terminal; where there is none, no line is cut."""
    Console(width=None if sys.stdout.isatty() else WIDE).print(tables)


def read_sha256(run: Path, decoding: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of what a run translates with beside its own model, by the key that names it.

    Raises:
        UserError: it is not there.
    """
    given = {key: decoding[key] for key in FILES if decoding.get(key)}
    files = given.keys() & {"dictionary", "shortlist"}
    found = {key: file_hash(Path(given[key])) for key in sorted(files)}
    if "ensemble" in given:
        members = paths_in(given["ensemble"])
        found["ensemble"] = fingerprint([load_bundle(each).weights_sha256 for each in members])
    if (engine := decoding.get("engine", "native")) != "native":
        folder = export_folder(str(run), engine, given.get("export"))
        parts = sorted(path for path in folder.glob("*") if path.is_file())
        found["export"] = fingerprint([[path.name, file_hash(path)] for path in parts])
    return found


def _attention(
    translator: Translator, test_set: TestSet, hypotheses: Sequence[str], lines: Sequence[int]
) -> Mapping[int, WordAttention]:
    """By index; none of a model without attention, nor of a sentence that is empty or too long."""
    found: dict[int, WordAttention] = {}
    if not attends(translator.model):
        return found
    sides = (
        (translator.tokenizers.source, test_set.sources),
        (translator.tokenizers.target, hypotheses),
    )
    for line in lines:
        if any(len(side.encode(texts[line - 1])) >= MAX_LENGTH for side, texts in sides):
            log.info("the attention of line %d is not shown: it is too long", line)
            continue
        try:
            seen = translator.align(test_set.sources[line - 1], hypotheses[line - 1])
        except UserError as error:
            log.info("the attention of line %d is not shown: %s", line, error)
            continue
        mean = seen.weights.mean(axis=(0, 1))  # (T, S)
        found[line - 1] = word_attention(seen.source_pieces, seen.target_pieces, mean)
    return found
