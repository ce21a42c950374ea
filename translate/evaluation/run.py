"""Translate a split and score it: text in, figures and files out."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from translate.data.text import json_line
from translate.errors import UserError
from translate.evaluation import report
from translate.evaluation.buckets import by_source_length
from translate.evaluation.comet import CometModel
from translate.evaluation.likelihood import likelihood
from translate.evaluation.metrics import evaluate, reference_streams
from translate.evaluation.report import Memory, Report
from translate.evaluation.sentences import sentence_scores
from translate.evaluation.significance import intervals
from translate.evaluation.slices import by_label, by_rarest_word
from translate.files import check_folder
from translate.wording import counted

if TYPE_CHECKING:
    from translate.inference.translator import Translator


@dataclass(frozen=True)
class TestSet:
    """Sentences to translate, the references of each, and the name of the whole."""

    __test__ = False  # pytest would take the name for a test's

    split: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    domains: Sequence[str] | None = None  # of each item, where they are known
    word_counts: Mapping[str, int] | None = None  # of the training text, where it is known
    own: bool = True  # whether the name is its own: the `test` of another run is not

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
            folder, self.split, own=self.own,
            sources_sha256=self.sources_sha256, references_sha256=self.references_sha256,
        )  # fmt: skip
        return replace(self, split=name, own=True)

    @property
    def sources_sha256(self) -> str:
        """SHA-256 of the sentences (see `report.fingerprint`)."""
        return report.fingerprint(self.sources)

    @property
    def references_sha256(self) -> str:
        """SHA-256 of the references (see `report.fingerprint`)."""
        return report.fingerprint([list(item) for item in self.references])


@dataclass(frozen=True)
class Judging:
    """How translations are judged."""

    tokenize: str  # BLEU's tokeniser
    resamples: int  # of the bootstrap behind the confidence intervals
    seed: int  # of the same
    comet: CometModel | None = None  # judges them as well


def evaluate_split(
    translator: Translator,
    test_set: TestSet,
    *,
    folder: Path,
    command: str,
    decoding: Mapping[str, object],
    model_sha256: str,
    judging: Judging,
    read_sha256: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[int], object] = lambda done: None,
    page: Callable[[Report, TestSet, Sequence[str]], str] | None = None,
) -> Report:
    """Translate a test set, score it, write the files of `report` and return it.

    The translations are written before anything else is made of them.

    Args:
        translator: translates the sources, and scores the references.
        test_set: sentences and references.
        folder: where the files go, made on demand.
        command: what to type to get this again; recorded, as are the next two.
        decoding: the settings of the search.
        model_sha256: which weights these are.
        judging: how the translations are judged.
        read_sha256: of what the translator was made of beside the model, by the key that names it.
        progress: called with the number of sentences done so far.
        page: makes the HTML report of it, if one is wanted.

    Raises:
        UserError: nothing to score, counts that differ or a folder that cannot be written to, all
            found before anything is translated.
    """
    test_set.check()
    check_folder(folder)
    hypotheses, seconds = _translate(translator, test_set.sources, progress)
    memory = peak_memory(translator.device)
    report.write_hypotheses(test_set.split, hypotheses, folder)
    references, tokenize, comet = test_set.references, judging.tokenize, judging.comet
    result = Report(
        split=test_set.split,
        tokenize=tokenize,
        scores=evaluate(hypotheses, references, tokenize=tokenize),
        confidence=intervals(
            hypotheses,
            references,
            resamples=judging.resamples,
            seed=judging.seed,
            tokenize=tokenize,
        ),
        comet=None if comet is None else comet.judge(test_set.sources, hypotheses, references),
        likelihood=likelihood(translator, test_set.sources, references),
        buckets=by_source_length(test_set.sources, hypotheses, references, tokenize=tokenize),
        rarity=[]
        if test_set.word_counts is None
        else by_rarest_word(
            test_set.sources, hypotheses, references, test_set.word_counts, tokenize=tokenize
        ),
        domains=by_label(test_set.domains or (), hypotheses, references, tokenize=tokenize),
        sentences=sentence_scores(hypotheses, references, tokenize=tokenize),
        items=len(test_set.sources),
        references=sum(map(len, references)),
        empty_hypotheses=sum(not text.strip() for text in hypotheses),
        seconds=seconds,
        memory=memory,
        decoding=decoding,
        command=command,
        model_sha256=model_sha256,
        sources_sha256=test_set.sources_sha256,
        references_sha256=test_set.references_sha256,
        hypotheses_sha256=report.digest(report.as_lines(hypotheses)),
        read_sha256=read_sha256,
    )
    further = {"sentences.jsonl": _sentences(result, test_set, hypotheses)}
    if page is not None:
        further["html"] = page(result, test_set, hypotheses).encode("utf-8", "replace")
    report.write(result, folder, further)
    return result


def peak_memory(device: torch.device) -> Memory:
    """The most memory held so far.

    By this process or by a worker of it, whichever held more, and by its tensors if `device` is a
    GPU.
    """
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    process = max(resource.getrusage(whose).ru_maxrss for whose in processes) * unit
    gpu = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Memory(round(process / 2**20, 1), None if gpu is None else round(gpu / 2**20, 1))


def _translate(
    translator: Translator, sources: Sequence[str], progress: Callable[[int], object]
) -> tuple[list[str], float]:
    """The best translation of every source, and the wall time in seconds."""
    hypotheses: list[str] = []
    start = time.perf_counter()
    for best, *_ in translator.stream(sources):
        hypotheses.append(best.text)
        progress(len(hypotheses))
    return hypotheses, time.perf_counter() - start


def _sentences(result: Report, test_set: TestSet, hypotheses: Sequence[str]) -> bytes:
    """A JSON object a line: a sentence, its translation and its scores."""
    known: dict[str, Sequence[object]] = {}
    if test_set.domains is not None:
        known["domain"] = test_set.domains
    if result.comet is not None:
        known["comet"] = result.comet.sentences
    lines = (
        json_line(
            {
                "line": number,
                "source": source,
                "references": list(references),
                "hypothesis": hypothesis,
                **asdict(scores),
                **{name: values[number - 1] for name, values in known.items()},
            }
        )
        for number, (source, references, hypothesis, scores) in enumerate(
            zip(test_set.sources, test_set.references, hypotheses, result.sentences, strict=True),
            start=1,
        )
    )
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
