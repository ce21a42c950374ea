"""translate evaluate: how good the translations are."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from translate import config as schema
from translate.cli.commands import Job
from translate.cli.errors import refuse
from translate.cli.fields import Device, Folder, Node
from translate.inference.choices import Engine, Precision
from translate.inference.minimum_bayes_risk import Utility

log = logging.getLogger(__name__)

HELP = """\
translate evaluate: compute BLEU, chrF and TER on a split or on files

  translate evaluate run=runs/demo                         # the test sentences of its corpus
  translate evaluate run=runs/demo data.split=dev search=beam search.beam_size=8
  translate evaluate run=runs/demo input=news.es reference=news.en reference=news.other.en

Scores are sacreBLEU's, on detokenised text with every reference, each with the signature needed to
reproduce it and the half width of its 95 % bootstrap interval. Tables by source length, by the
rarest source word's count in training (in scripts without spaces, each letter counts as a word) and
by domain follow, then the perplexity of the first references (with engine=ctranslate2, that of the
original model), speed and memory. The following go to evaluation/ in the run: <split>.hyp, the
translations, written before they are scored; <split>.sentences.jsonl, each sentence with its
scores; <split>.json, the figures; and <split>.html, a page with curves, worst and best sentences
and attention. With input=, the files are named after that file (news.es.json). If other sentences
already have that name, six hexadecimal digits are appended; `test` and `dev` are reserved for the
run's own corpus, so those of another one (data=) get the digits too. To see several runs side by
side, use translate compare.

Keys:
  run            the folder of the run (required)
  ensemble       further runs, separated by commas, whose probabilities are averaged with its own
  data.split     test or dev; default test
  input          source sentences of your own, one per line, with
  reference      their translations, one per line; repeat for further files of references; a blank
                 line counts as no reference where another file has one
  domains        a file with the domain of each sentence, one per line, for a table by domain
  data.domain    the same from a column of data=tsv, jsonl or hub; default: as stored
  comet          the folder of a COMET model on this disk, to add its scores (a pickle: use one you
                 trust); needs the extra `comet`; loaded first, and included in the reported memory
  output         the folder of the files; default: evaluation/ in the run; in a sweep (--multirun)
                 a folder there for each job
  search         how to search; default: as stored in the run
  target         of a multilingual run: the tag of the language to translate into
  mbr            chrf or bleu: of search.n_best translations, the one most like all of them
  replace_unknown  true: replace each <unk> by the source word it attends to most; only a model
                 whose vocabulary lacks some words of the training text writes <unk>
  dictionary     with replace_unknown: a file of SOURCE<tab>TARGET lines, for words not to copy
  shortlist      a file from translate shortlist: faster, with only each sentence's likely words
  data, tokenizer  the corpus; default: as stored (data.dir=PATH if it has moved)
  cache          the folder of downloads and prepared corpora (default: data, or TRANSLATE_CACHE)
  engine         native, or ctranslate2 for what translate export has written
  export         with engine=ctranslate2: the folder of the export; default: ctranslate2 in the run
  workers        on a CPU, how many single-threaded processes translate batches in parallel; 1: one
                 process on all threads; default: one worker per core, where the system can fork
                 (engine=ctranslate2: threads, in one process)
  precision      float32 or bf16: the numbers to compute with; default: those of the weights
  device         auto, cpu, cuda, cuda:1 or mps
  tokens_per_batch  source tokens, padding included, translated at once
  resamples      how often to resample the test set, for the intervals
  seed           of the resampling
  tokenize       BLEU's: 13a, zh, ja-mecab, ko-mecab, char, intl, flores200 …; default: by the
                 target language, as sacreBLEU chooses, or char for other text without spaces;
                 with zh, ja-mecab and char, TER counts Chinese and Japanese characters
  shown          how many of the worst and of the best sentences to show on the page
  attention      the lines whose attention to show on the page, such as [1,5]
"""


def job(job: Job) -> None:
    """Check the configuration, then translate and score."""
    from translate.cli.engines import engine_problems
    from translate.cli.validation import mbr_problems, search_problems

    refuse(schema.problems(run, job.config, ""))
    refuse(search_problems(job.config["search"]))
    refuse(engine_problems(job) + mbr_problems(job.config))
    run(job, **job.config)


def run(
    job: Job,
    *,
    data: Node,
    tokenizer: Node,
    search: Node,
    target: str | None,
    cache: Folder,
    device: Device,
    tokens_per_batch: PositiveInt | None,
    engine: Engine,
    workers: PositiveInt | None,
    precision: Precision | None,
    replace_unknown: bool,
    mbr: Utility | None,
    resamples: PositiveInt,
    seed: NonNegativeInt,
    tokenize: str | None,
    shown: NonNegativeInt,
    attention: list[PositiveInt],
) -> None:
    """Translate a test set and print its figures."""
    from translate.cli.engines import engine_translator
    from translate.cli.errors import UsageError
    from translate.cli.judging import (
        FILES,
        OPTIONS,
        evaluate_run,
        read_test_set,
        seen_in_training,
        show,
    )
    from translate.cli.stored import load_bundle
    from translate.evaluation.bleu_tokenizer import settle
    from translate.evaluation.comet import CometModel
    from translate.evaluation.report_tables import render
    from translate.evaluation.run import Judging
    from translate.inference.translator import choose_device

    if target is not None and "input" not in job.verbatim:
        main = load_bundle(job.verbatim["run"]).config.tag
        if target != main:
            raise UsageError(
                f"target={target}: the {data['split']} sentences of this run use "
                f"{main or 'no tag'}: give input= and reference= in that language"
            )

    _tell_too_few("resamples", resamples)
    folder, comet = Path(job.verbatim["run"]), None
    if "comet" in job.verbatim:
        comet = CometModel(Path(job.verbatim["comet"]), device=choose_device(device))
    translator = engine_translator(job.config, job.verbatim)
    test_set = read_test_set(job, folder)
    if seen := seen_in_training(str(folder), test_set.sources, cache):
        log.warning(
            "%s of %s sentences are in the training text of %s: its scores are higher than they "
            "would be on others",
            f"{seen:,}", f"{len(test_set.sources):,}", folder,
        )  # fmt: skip
    language = target or load_bundle(str(folder)).config.target_language
    report = evaluate_run(
        folder,
        translator,
        test_set,
        folder=_output(job, folder),
        command=sys.argv[1:],
        decoding={
            **search,
            **{key: job.config[key] for key in OPTIONS},
            **{key: job.verbatim.get(key) for key in FILES},
        },
        judging=Judging(settle(tokenize, language, test_set.references), resamples, seed, comet),
        shown=shown,
        attention=attention,
    )
    _tell_too_few("sentences", report.items)
    show(render(report))


def _tell_too_few(name: str, count: int) -> None:
    from translate.evaluation.comparison_caveats import ENOUGH

    if count < ENOUGH:  # a single sentence has an interval of ± 0
        log.warning("%s = %d is too few for an interval: give %d or more", name, count, ENOUGH)


def _output(job: Job, run: Path) -> Path:
    """The jobs of a sweep get a folder each, but splits, whose files have names of their own."""
    folder = Path(job.verbatim.get("output", run / "evaluation"))
    return folder / job.name("", "data.split")
