"""Evaluate a run on a test set: text in, figures and files out."""

from __future__ import annotations

import logging
import math
import os
import resource
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from translate.data.plain_text import json_line
from translate.data.progress import progress
from translate.evaluation import report
from translate.evaluation.breakdown import by_label, by_rarest_word, by_source_length
from translate.evaluation.metrics import (
    ENOUGH,
    choose_tokenizer,
    corpus_scores,
    intervals,
    sentence_scores,
)
from translate.evaluation.report import Comet, Likelihood, PeakMemory, Report
from translate.evaluation.test_sets import TestSet, read_test_set, seen_in_training
from translate.files import check_folder, file_hash, refuse_links
from translate.inference import bundle
from translate.inference.batches import choose_device
from translate.inference.forcing import TooLongError
from translate.inference.translator import load as load_translator
from translate.names import on_demand
from translate.run_folder import paths_in

if TYPE_CHECKING:
    from translate.inference.translator import Translator

log = logging.getLogger(__name__)

PAGE = "translate.extras.pages:EvaluationPage"
MODIFIED = "translate.extras.robustness:modified_scores"
COMET = "translate.extras.comet:CometModel"
# beside the search, the settings of a translator that an evaluation records
OPTIONS = ("target", "engine", "precision", "replace_unknown", "mbr")
FILES = ("dictionary", "ensemble", "export", "shortlist", "terms")
NATIVE = {"engine": "native", "replace_unknown": False, "dictionary": None}
NAMED = 5  # lines named one by one


# from sources, translations and references to the scores of a learned metric
Judge = Callable[[Sequence[str], Sequence[str], Sequence[Sequence[str]]], Comet]
# from figures, test set and translations to a page of HTML
Page = Callable[[Report, TestSet, Sequence[str]], str]


@dataclass(frozen=True)
class Judging:
    """The settings of scoring."""

    tokenize: str  # BLEU's tokeniser
    resamples: int  # of the bootstrap behind the confidence intervals
    seed: int  # of the same
    comet: Judge | None = None
    modifiers: Sequence[str] = ()


def evaluate(
    run: str | Path,
    *,
    split: str = "test",
    input: str | Path | None = None,
    references: Sequence[str | Path] = (),
    domains: str | Path | None = None,
    search: Mapping[str, Any] | None = None,
    target: str | None = None,
    device: str = "auto",
    tokens_per_batch: int | None = None,
    tokenize: str | None = None,
    resamples: int = 1000,
    seed: int = 12345,
    comet: str | Path | None = None,
    output: str | Path | None = None,
    shown: int = 20,
    attention: Sequence[int] = (1,),
    modifiers: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    translator: Callable[[], Translator] | None = None,
    decoding: Mapping[str, Any] | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Translate a test set with a run, score it, and leave the files of `report`.

    Args:
        run: the folder of the run.
        split: test or dev of its own corpus, unless `input` names a file.
        input: source sentences, one a line; `-` is standard input.
        references: files of their translations, one a line.
        domains: a file with the domain of each sentence.
        search: keys of conf/search, in place of the run's own.
        target: of a multilingual run, the tag of the language to translate into.
        device: where to compute.
        tokens_per_batch: source tokens that are translated at once.
        tokenize: BLEU's tokeniser; by default that of the target language.
        resamples: of the test set, for the confidence intervals.
        seed: of the resampling.
        comet: the folder of a COMET model, which scores as well.
        output: the folder of the files; by default evaluation/ in the run.
        shown: how many of the worst, and of the best, sentences the page shows.
        attention: the lines, from 1, whose attention the page shows.
        modifiers: names of `data.modifiers`, to score the sentences as each changes them.
        data: the corpus, in place of the run's own.
        tokenizer: the tokenizer of that corpus.
        cache: the folder of downloads and prepared corpora.
        translator: makes another translator than the run's own; `decoding` has its settings.
        decoding: the settings of that translator, which the report records.
        command: the arguments that repeat this, which the report records.

    Raises:
        UserError: no such run, test set or folder, all noticed before anything is translated.
    """
    folder = Path(run)
    if output is None:
        refuse_links(folder, "evaluation")
    if resamples < ENOUGH:
        _tell_too_few("resamples", resamples)
    judge = (
        None if comet is None else on_demand(COMET)(Path(comet), device=choose_device(device)).judge
    )
    loaded = bundle.of_run(run).into(target)
    if translator is None:
        translator = partial(
            load_translator, loaded,
            search=search, device=device, tokens_per_batch=tokens_per_batch,
        )  # fmt: skip
        decoding = {**loaded.config.search, **(search or {}), **NATIVE, "target": target}
    model = translator()
    if cache is None:
        cache = os.environ.get("TRANSLATE_CACHE", "data")
    test_set = read_test_set(
        folder, split=split, input=input, references=references, domains=domains,
        data=data, tokenizer=tokenizer, cache=cache,
    )  # fmt: skip
    if seen := seen_in_training(folder, test_set.sources, cache):
        log.warning(
            "%s of %s sentences are in the training text of %s: its scores are higher than they "
            "would be on others",
            f"{seen:,}", f"{len(test_set.sources):,}", folder,
        )  # fmt: skip
    language = target or loaded.config.target_language
    tokenize = choose_tokenizer(tokenize, language, test_set.references)
    result = evaluate_run(
        folder,
        model,
        test_set,
        folder=folder / "evaluation" if output is None else Path(output),
        command=command,
        decoding=decoding or {},
        judging=Judging(tokenize, resamples, seed, judge, modifiers),
        shown=shown,
        attention=attention,
    )
    if result.items < ENOUGH:  # a single sentence has an interval of ± 0
        _tell_too_few("sentences", result.items)
    return result


def _tell_too_few(name: str, count: int) -> None:
    log.warning("%s = %d is too few for an interval: give %d or more", name, count, ENOUGH)


def evaluate_run(
    run: Path,
    translator: Translator,
    test_set: TestSet,
    *,
    folder: Path,
    command: Sequence[str],
    decoding: Mapping[str, Any],
    judging: Judging,
    shown: int,
    attention: Sequence[int],
) -> Report:
    """Translate, score, and leave the files of an evaluation in `folder`; see `evaluate`."""
    page = on_demand(PAGE)(run, translator, test_set, shown=shown, attention=attention)
    placed = test_set.placed(folder)
    if placed.split != test_set.split:
        log.warning(
            "%s.json already belongs to other sentences: this evaluation is named %s",
            folder / test_set.split, placed.split,
        )  # fmt: skip
    return translate_and_score(
        translator,
        placed,
        folder=folder,
        command=shlex.join(["translate", *command]),
        decoding=decoding,
        model_sha256=bundle.of_run(run).weights_sha256,
        judging=judging,
        read_sha256=read_sha256(run, decoding),
        page=page.render,
    )


def read_sha256(run: Path, decoding: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of what a run translates with beside its own model, by the key that names it.

    Raises:
        UserError: it is not there.
    """
    hashes = {
        key: file_hash(Path(decoding[key]))
        for key in ("dictionary", "shortlist", "terms")
        if decoding.get(key)
    }
    if members := decoding.get("ensemble"):
        weights = [bundle.of_run(each).weights_sha256 for each in paths_in(members)]
        hashes["ensemble"] = report.fingerprint(weights)
    if (engine := decoding.get("engine", "native")) != "native":
        folder = Path(decoding.get("export") or run / engine)
        parts = sorted(path for path in folder.glob("*") if path.is_file())
        hashes["export"] = report.fingerprint([[path.name, file_hash(path)] for path in parts])
    return hashes


def translate_and_score(
    translator: Translator,
    test_set: TestSet,
    *,
    folder: Path,
    command: str,
    decoding: Mapping[str, object],
    model_sha256: str,
    judging: Judging,
    read_sha256: Mapping[str, str] = MappingProxyType({}),
    page: Page | None = None,
) -> Report:
    """Translate a test set, score it, write the files of `report` and return it.

    The translations are written before anything else is made of them.

    Args:
        translator: translates the sources, and scores the references.
        test_set: sentences and references.
        folder: where the files go, made on demand.
        command: the arguments that repeat this; recorded, as are the next two.
        decoding: the settings of the search.
        model_sha256: of the weights.
        judging: the settings of scoring.
        read_sha256: of what the translator was made of beside the model, by the key that names it.
        page: makes the HTML report.

    Raises:
        UserError: nothing to score, counts that differ or a folder that cannot be written to, all
            noticed before anything is translated.
    """
    test_set.check()
    check_folder(folder)
    sources, references, tokenize = test_set.sources, test_set.references, judging.tokenize
    hypotheses: list[str] = []
    with progress("translating", total=len(sources)) as advance:
        start = time.perf_counter()
        for best, *_ in translator.stream(sources):
            hypotheses.append(best.text)
            advance(1)
        seconds = time.perf_counter() - start
    memory = peak_memory(translator.device)
    report.write_hypotheses(test_set.split, hypotheses, folder)
    comet, counts = judging.comet, test_set.word_counts
    result = Report(
        split=test_set.split,
        tokenize=tokenize,
        scores=corpus_scores(hypotheses, references, tokenize=tokenize),
        confidence=intervals(
            hypotheses,
            references,
            resamples=judging.resamples,
            seed=judging.seed,
            tokenize=tokenize,
        ),
        comet=None if comet is None else comet(sources, hypotheses, references),
        likelihood=likelihood(translator, sources, references),
        buckets=by_source_length(sources, hypotheses, references, tokenize=tokenize),
        rarity=[]
        if counts is None
        else by_rarest_word(sources, hypotheses, references, counts, tokenize=tokenize),
        domains=by_label(test_set.domains or (), hypotheses, references, tokenize=tokenize),
        sentences=sentence_scores(hypotheses, references, tokenize=tokenize),
        items=len(sources),
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
        modified=on_demand(MODIFIED)(
            translator.translate, sources, references, hypotheses,
            names=judging.modifiers, seed=judging.seed, tokenize=tokenize,
        ) if judging.modifiers else (),
    )  # fmt: skip
    further = {"sentences.jsonl": _sentence_lines(result, test_set, hypotheses)}
    if page is not None:
        further["html"] = page(result, test_set, hypotheses).encode("utf-8", "replace")
    report.write_figures(result, folder, further)
    return result


def likelihood(
    translator: Translator, sources: Sequence[str], references: Sequence[Sequence[str]]
) -> Likelihood | None:
    """Score the first reference of every item by teacher forcing.

    Pairs that are longer than the model reads are left out with a warning; None where all are.
    """
    first = [item[0] for item in references]
    left_out = 0
    try:
        scores = translator.score(sources, first)
    except TooLongError as error:
        left_out = len(error.indices)
        lines = [str(index + 1) for index in error.indices][:NAMED] + ["…"] * (left_out > NAMED)
        log.warning(
            "perplexity leaves out %d of %d pairs, which are longer than the model reads: line %s",
            left_out, len(first), ", ".join(lines),
        )  # fmt: skip
        kept = sorted(set(range(len(first))).difference(error.indices))
        if not kept:
            return None
        first = [first[i] for i in kept]
        scores = translator.score([sources[i] for i in kept], first)
    return Likelihood(
        log_prob=math.fsum(score.log_prob for score in scores),
        tokens=sum(score.tokens for score in scores),
        characters=sum(len(text) + 1 for text in first),
        left_out=left_out,
        unknown=sum(score.unknown for score in scores),
    )


def peak_memory(device: torch.device) -> PeakMemory:
    """The most memory held so far.

    By this process or by a worker of it, whichever held more, and by its tensors if `device` is a
    GPU.
    """
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    process = max(resource.getrusage(whose).ru_maxrss for whose in processes) * unit
    gpu = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return PeakMemory(round(process / 2**20, 1), None if gpu is None else round(gpu / 2**20, 1))


def _sentence_lines(result: Report, test_set: TestSet, hypotheses: Sequence[str]) -> bytes:
    """A JSON object a line: a sentence, its translation and its scores."""
    further: dict[str, Sequence[object]] = {}
    if test_set.domains is not None:
        further["domain"] = test_set.domains
    if result.comet is not None:
        further["comet"] = result.comet.sentences
    items = zip(test_set.sources, test_set.references, hypotheses, result.sentences, strict=True)
    lines = [
        json_line(
            {
                "line": number + 1,
                "source": source,
                "references": list(references),
                "hypothesis": hypothesis,
                **asdict(scores),
                **{name: values[number] for name, values in further.items()},
            }
        )
        for number, (source, references, hypothesis, scores) in enumerate(items)
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
