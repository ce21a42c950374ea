"""Test sets: sentences and their references, from files or from the corpus of a run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow

from translate.data.corpus import BATCHING, Corpus, load, prepare, read_nodes
from translate.data.pairs import in_order
from translate.data.plain_text import read_lines, sameness, unpacked_name
from translate.data.tokenizer import own_vocabulary
from translate.errors import UsageError, UserError
from translate.evaluation import report
from translate.evaluation.breakdown import word_counts
from translate.evaluation.metrics import reference_streams
from translate.run_folder import configuration, noted
from translate.wording import counted, shortened

log = logging.getLogger(__name__)

SPLITS = ("test", "dev")  # of a run's own corpus, that it can be judged on


@dataclass(frozen=True)
class TestSet:
    """Sentences to translate, the references of each, and the name of the whole."""

    __test__ = False  # pytest would take the name for a test's

    split: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    domains: Sequence[str] | None = None  # of each item, where they are known
    word_counts: Mapping[str, int] | None = None  # of the training text, where it is known
    holds_name: bool = True  # False: the name is another's, such as the `test` of another run

    def check(self) -> None:
        """Raise a UserError where counts differ or nothing is there to score."""
        if not self.sources:
            raise UserError(f"{self.split} has no sentences: there is nothing to score")
        reference_streams(self.sources, self.references)
        if self.domains is not None and len(self.domains) != len(self.sources):
            raise UserError(
                f"{counted(len(self.domains), 'domain')} for "
                f"{counted(len(self.sources), 'sentence')}: line n of domains= must name the "
                "domain of sentence n"
            )

    def placed(self, folder: Path) -> TestSet:
        """The same test set by the name of its evaluation in a folder (see `report.name_in`)."""
        name = report.name_in(
            folder, self.split, holds_name=self.holds_name,
            sources_sha256=self.sources_sha256, references_sha256=self.references_sha256,
        )  # fmt: skip
        return replace(self, split=name, holds_name=True)

    @property
    def sources_sha256(self) -> str:
        """SHA-256 of the sentences (see `report.fingerprint`)."""
        return report.fingerprint(self.sources)

    @property
    def references_sha256(self) -> str:
        """SHA-256 of the references (see `report.fingerprint`)."""
        return report.fingerprint([list(item) for item in self.references])


def read_test_set(
    run: Path,
    *,
    split: str,
    input: str | Path | None,
    references: Sequence[str | Path],
    domains: str | Path | None,
    data: Mapping[str, Any] | None,
    tokenizer: Mapping[str, Any] | None,
    cache: str | Path,
) -> TestSet:
    """Read the files of sentences, else a split of the run's corpus; arguments as of `evaluate`.

    Raises:
        UserError: neither is there, line counts differ, or there are no lines.
    """
    if input is not None or references:
        if input is None or not references:
            missing = "input" if input is None else "reference"
            raise UsageError(f"{missing}=FILE is missing: input= and reference= go together")
        test_set = _own_files(str(input), list(map(str, references)))
    else:
        corpus, table = corpus_of_run(run, split=split, data=data, tokenizer=tokenizer, cache=cache)
        holds_name = data is None or is_own_corpus(run, data)
        named = (data or {}).get("domain") is not None and "group" in table.column_names
        test_set = TestSet(
            split,
            list(in_order(table, "source")),
            list(in_order(table, "references")),
            domains=list(in_order(table, "group")) if named else None,
            word_counts=word_counts(in_order(corpus.train, "source")) if holds_name else None,
            holds_name=holds_name,
        )
    if domains is not None:
        test_set = replace(test_set, domains=list(read_lines(domains)))
    test_set.check()
    return test_set


def _own_files(source: str, references: Sequence[str]) -> TestSet:
    sources, others = parallel_lines(source, references)
    # an item has the references that are not blank, for not every item has as many
    items = [
        [text for text in item if text.strip()] or list(item[:1])
        for item in zip(*others, strict=True)
    ]
    pairs = zip(sources, items, strict=True)
    if blank := sum(bool(text.strip()) and not item[0].strip() for text, item in pairs):
        log.warning(
            "%s of %s sentences have a blank reference, which counts as a reference of length 0",
            f"{blank:,}", f"{len(sources):,}",
        )  # fmt: skip
    name = shortened(name_of(source))
    return TestSet(name, sources, items, holds_name=name not in SPLITS)


def parallel_lines(source: str, references: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The lines of parallel files, one of which may be standard input (`-`); each is read once.

    Raises:
        UserError: the files differ in their number of lines.
    """
    if source == "-" in references:
        raise UsageError("input=- and reference=-: only one of the two can be standard input")
    sources, *others = (
        list(read_lines(sys.stdin.buffer if path == "-" else path))
        for path in (source, *references)
    )
    for reference, lines in zip(references, others, strict=True):
        if len(sources) != len(lines):
            raise UserError(
                f"{source} has {counted(len(sources), 'line')}, but {reference} has "
                f"{len(lines):,}: line n of one must translate line n of the other"
            )
    return sources, others


def name_of(path: str) -> str:
    """The name of files about the lines of `input=`."""
    return "stdin" if path == "-" else unpacked_name(Path(path).name)


def corpus_of_run(
    run: Path,
    *,
    split: str,
    data: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    cache: str | Path,
) -> tuple[Corpus, pyarrow.Table]:
    """The corpus a run was trained on, or another in its place; and the table of a split.

    Raises:
        UserError: the run does not say what it was trained on, or there is no such split.
    """
    if split not in SPLITS:
        raise UsageError(f"data.split = {split!r}: must be {' or '.join(map(repr, SPLITS))}")
    config = configuration(run)
    data = {key: value for key, value in (data or config.get("data", {})).items() if key != "split"}
    if not data:
        raise UserError(
            f"{run} has no config.yaml that names its corpus: give data= and tokenizer=, or "
            "input=FILE reference=FILE where the command has those keys"
        )
    stored = config.get("tokenizer", {})
    source, pieces = read_nodes(data, stored if tokenizer is None else tokenizer)
    if tokenizer is None or tokenizer == stored:
        pieces = own_vocabulary(pieces, run)
    corpus = prepare(source, pieces, cache=Path(cache))
    table = corpus.test if split == "test" else corpus.dev
    if table is None:
        raise UserError(
            "this corpus has no test split: use data.split=dev, or input=FILE reference=FILE"
        )
    return corpus, table


def is_own_corpus(run: Path, data: Mapping[str, Any]) -> bool:
    """Tell whether a node `data` names the corpus of a run; where it lies does not matter."""
    free = {*BATCHING, "dir", "split", "domain"}
    texts = [
        {key: value for key, value in node.items() if key not in free}
        for node in (configuration(run).get("data", {}), data)
    ]
    return texts[0] == texts[1]


def seen_in_training(run: Path, sources: Sequence[str], cache: str | Path) -> int:
    """Count the sources that are in a run's training text, as far as that is still prepared.

    Of a split of the run's own corpus none is, unless data.allow_overlap=true asked for it.
    """
    corpus = noted(run, "corpus") or {}
    folder = Path(cache).expanduser() / "corpora" / corpus.get("corpus", "")
    if not corpus or not folder.is_dir():
        return 0
    asked = list(map(sameness, sources))
    known = set(asked).intersection(map(sameness, in_order(load(folder).train, "source")))
    return sum(map(known.__contains__, asked))
