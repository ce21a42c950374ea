"""Translate a split and score it: text in, figures and files out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from translate.evaluation import report
from translate.evaluation.buckets import EDGES, by_length
from translate.evaluation.metrics import evaluate, reference_streams
from translate.evaluation.report import Report


class HasText(Protocol):
    """One translation."""

    @property
    def text(self) -> str:
        """The detokenised sentence, without a newline."""
        ...


class Streams(Protocol):
    """What translates lines, as `inference.translator.Translator` does."""

    def stream(self, lines: Iterable[str], /) -> Iterator[Sequence[HasText]]:
        """An n-best list a line, in the order of the lines, best first."""
        ...


def evaluate_split(
    translator: Streams,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    folder: Path,
    split: str,
    command: str,
    decoding: Mapping[str, object],
    model_sha256: str,
    tokenize: str = "13a",
    edges: Sequence[int] = EDGES,
    progress: Callable[[int], object] = lambda done: None,
) -> Report:
    """Translate `sources`, score them, write `folder/<split>.json` and `.hyp`, return the report.

    Args:
        translator: what translates; nothing is asked of it but `stream`.
        sources: a sentence an item.
        references: the references of each item, one or more.
        folder: where the two files go, made on demand.
        split: their name.
        command: what to type to get this again; recorded, as are the next two.
        decoding: the settings of the search.
        model_sha256: which weights these are.
        tokenize: BLEU's tokeniser.
        edges: the longest source length of each bucket, in words.
        progress: called with the number of sentences done so far.

    Raises:
        UserError: nothing to score or counts that differ, both found before anything is translated,
            or a folder that cannot be written to.
    """
    reference_streams(sources, references)
    hypotheses, seconds = _translate(translator, sources, progress)
    result = Report(
        split=split,
        scores=evaluate(hypotheses, references, tokenize=tokenize),
        buckets=by_length(sources, hypotheses, references, edges),
        items=len(sources),
        references=sum(map(len, references)),
        empty_hypotheses=sum(not text.strip() for text in hypotheses),
        seconds=seconds,
        decoding=decoding,
        command=command,
        model_sha256=model_sha256,
        sources_sha256=report.fingerprint(sources),
        references_sha256=report.fingerprint([list(item) for item in references]),
        hypotheses_sha256=report.digest(report.as_lines(hypotheses)),
    )
    report.write(result, hypotheses, folder)
    return result


def _translate(
    translator: Streams, sources: Sequence[str], progress: Callable[[int], object]
) -> tuple[list[str], float]:
    """The best translation of every source, and the wall time in seconds."""
    hypotheses: list[str] = []
    start = time.perf_counter()
    for best, *_ in translator.stream(sources):
        hypotheses.append(best.text)
        progress(len(hypotheses))
    return hypotheses, time.perf_counter() - start
