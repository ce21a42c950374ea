"""translate compare: runs side by side, and whether their differences are more than chance."""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from translate.cli.arguments import Arguments
from translate.cli.commands import Job, shortened, whole_run
from translate.cli.errors import UsageError
from translate.cli.options import Device, PathOption, RepeatedPath, Sentences, SplitOptions

if TYPE_CHECKING:
    from translate.cli.stored_evaluations import Place
    from translate.evaluation.comparison import Comparison
    from translate.evaluation.run import TestSet

log = logging.getLogger(__name__)

USAGE = """\
  translate compare runs/a runs/b
  translate compare runs/a runs/b runs/c data.split=dev
  translate compare runs/a runs/b input=news.es reference=news.en
  translate train experiment=toy --multirun seed=1,2,3 run=runs/toy
  translate compare runs/toy-seed=1 runs/toy-seed=2 runs/toy-seed=3
  translate compare runs/a runs/b table=latex > table.tex

The first run is the baseline. Shows BLEU, chrF, TER and perplexity side by side, with paired
bootstrap resampling and paired approximate randomisation over sacreBLEU's statistics, sentences won
and lost, scores by source length, and the sentences that differ most. What else differs
(configuration keys, search, commit, versions, device) is told, as a possible reason. The last lines
say plainly which differences are more than chance. Runs that differ only in their seed, and in
settings that change results by rounding at most (threads, compilation, logging), form one
experiment, shown with mean and standard deviation (averages of checkpoints, runs fine-tuned from
another run and unfinished runs are kept apart). Two runs that were trained once are judged on other
sentences, not on other seeds, which may differ as much: only experiments tell of these. A folder of
runs stands for all of them. A run whose current model has not been evaluated on the test set is
evaluated first; the evaluation of an ensemble is refused, since it belongs to no single run.
"""

NOT_OF_EVALUATE = ("data.split=", "trials=", "shown=", "table=")


class CompareOptions(SplitOptions):
    """The options of `translate compare`."""

    usage: ClassVar[str] = USAGE

    runs: Sentences = ()
    input: PathOption | None = Field(
        None, description="source sentences of your own, a line each, with"
    )
    reference: RepeatedPath = Field(
        (), description="their translations, a line each; once for each file of references"
    )
    output: PathOption | None = Field(
        None,
        description="the folder of the page and the JSON; default: evaluation/ in the first run; "
        "what is missing of a run that cannot be written to is put in a folder there",
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:1 or mps")
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once; null: 8192, on a GPU "
        "16384",
    )
    resamples: PositiveInt = Field(1000, description="resamples of the paired bootstrap")
    trials: PositiveInt = Field(10000, description="trials of the approximate randomisation")
    seed: NonNegativeInt = Field(12345, description="of both; sacreBLEU's own default")
    tokenize: str | None = Field(
        None, description="BLEU's, as in evaluate; null: by the first run's target language"
    )
    shown: NonNegativeInt = Field(
        10, description="how many of the most different sentences to show"
    )
    table: Literal["csv", "latex"] | None = Field(
        None,
        description="csv or latex (for booktabs): standard output is a table alone, with a row for "
        "each run (± half of its 95 % bootstrap interval) or for the seeds of an experiment (mean "
        "± standard deviation); caveats and verdicts go to standard error",
    )

    @classmethod
    def run_of(cls, arguments: Arguments) -> str | None:
        if not arguments.sentences:
            raise UsageError("give at least two runs, as in translate compare runs/a runs/b")
        return _runs(arguments.sentences)[0]

    def contradictions(self) -> Iterator[str]:
        runs = _runs(self.runs)
        if len(runs) == 1:
            yield f"{runs[0]} is one run: name another to compare it with"
        yield from (f"{run} is named twice" for run in dict.fromkeys(runs) if runs.count(run) > 1)


def run(options: CompareOptions) -> None:
    """Compare the runs and tell."""
    from translate.cli.compared_runs import evaluate, is_missing, system
    from translate.cli.judging import check_output, read_test_set, seen_in_training, show
    from translate.cli.stored import load_bundle
    from translate.cli.stored_evaluations import check_stored, find_place, refuse_two_languages
    from translate.evaluation.bleu_tokenizer import settle
    from translate.evaluation.comparison import compare
    from translate.evaluation.comparison_caveats import too_few
    from translate.evaluation.comparison_export import as_text
    from translate.evaluation.comparison_tables import render
    from translate.evaluation.run import Judging

    job, runs = options.job, _runs(options.runs)
    resamples, trials, seed = options.resamples, options.trials, options.seed
    table, cache = options.table, options.cache
    _tell_left_out(options.runs, runs)
    # a missing run is told before another is evaluated
    for name in runs:
        load_bundle(name)
    test_set = read_test_set(job, Path(runs[0]))
    folder = Path(job.verbatim.get("output", Path(runs[0]) / "evaluation"))
    check_output(folder)
    language = load_bundle(runs[0]).config.target_language
    tokenize = settle(options.tokenize, language, test_set.references)
    places = [
        find_place(Path(name), _as_of(Path(name), Path(runs[0]), test_set, job), folder)
        for name in runs
    ]
    refuse_two_languages(places)
    for place in places:
        check_stored(place)  # before another is evaluated
    pending = [place.run for place in places if is_missing(place)]
    if pending:  # which may take hours
        for line in too_few(resamples=resamples, trials=trials):
            log.warning("%s", line)
    systems = []
    for place in places:
        if place.run in pending:
            evaluate(
                place, turn=f"{pending.index(place.run) + 1} of {len(pending)}",
                command=_again(job, place), device=options.device,
                tokens_per_batch=options.tokens_per_batch,
                judging=Judging(tokenize, resamples, seed),
            )  # fmt: skip
        seen = seen_in_training(str(place.run), test_set.sources, cache)
        systems.append(system(place, seen=seen))
    comparison = compare(
        systems, test_set.sources, test_set.references,
        split=test_set.split, resamples=resamples, trials=trials, seed=seed, shown=options.shown,
        tokenize=tokenize,
    )  # fmt: skip
    if table is None:
        show(render(comparison))
    else:
        _tell(comparison)
        sys.stdout.write(as_text(comparison, test_set.references, table))
    test = test_set.sources_sha256, test_set.references_sha256
    _write(comparison, folder, [runs, *test, resamples, trials, seed, tokenize])


def _tell(comparison: Comparison) -> None:
    """Caveats and verdicts in the log, where standard output holds a table."""
    for caveat in comparison.caveats:
        log.warning("%s", caveat)
    for verdict in comparison.verdicts:
        log.info("%s", verdict)


def _runs(given: Sequence[str]) -> list[str]:
    """The folders of runs; a folder that is none but holds some stands for them, by name."""
    runs: list[str] = []
    for name in map(whole_run, given):
        path = Path(name)
        inside = [str(folder) for folder in sorted(path.glob("*/")) if _is_run(folder)]
        runs += [name] if _is_run(path) or not inside else inside
    return [str(Path(name)) for name in runs]


def _tell_left_out(given: Sequence[str], runs: Sequence[str]) -> None:
    """Trainings in a folder of runs that ended before their bundle: a mean passes them over."""
    folders = [Path(name) for name in given if str(Path(whole_run(name))) not in runs]
    begun = [file.parent for folder in folders for file in sorted(folder.glob("*/config.yaml"))]
    if left_out := [str(folder) for folder in begun if not _is_run(folder)]:
        log.warning("left out, because they have no bundle: %s", ", ".join(left_out))


def _is_run(folder: Path) -> bool:
    from translate.inference.bundle import CHECKSUMS

    # a config.json alone: exports have one too
    return (folder / "bundle").is_dir() or (folder / CHECKSUMS).is_file()


def _as_of(run: Path, first: Path, test_set: TestSet, job: Job) -> TestSet:
    """The test set as a run sees it: the name `test` is kept for the run's own."""
    if "input" in job.verbatim:
        return test_set
    own = _same_corpus(run, first, job)
    counts = test_set.word_counts if own else None  # of the training text of another run
    return replace(test_set, own=own, word_counts=counts)


def _same_corpus(run: Path, first: Path, job: Job) -> bool:
    """Whether the test sentences, which are the first run's, are the run's own as well."""
    from translate.cli.stored import names_a_corpus, training_config
    from translate.data.corpus import BATCHING

    texts = [
        {key: value for key, value in training_config(each).get("data", {}).items()
         if key not in BATCHING}
        for each in (run, first)
    ]  # fmt: skip
    return not names_a_corpus(job) and texts[0] == texts[1]


def _again(job: Job, place: Place) -> list[str]:
    """What to type for a run's evaluation: evaluate, but for a corpus that is not the run's."""
    if "input" in job.verbatim:
        text = [f"reference={path}" for path in job.repeated["reference"]]
        text.append(f"input={job.verbatim['input']}")
    elif _same_corpus(place.run, Path(_runs(job.sentences)[0]), job):
        text = [f"data.split={job.config['data']['split']}"]
    else:
        return sys.argv[1:]
    kept = [o for o in job.overrides if not o.startswith(NOT_OF_EVALUATE)]
    kept += [] if place.own else [f"output={place.folder}"]
    return ["evaluate", f"run={place.run}", *text, *kept]


def _write(comparison: Comparison, folder: Path, made: Sequence[object]) -> None:
    """The page and the figures, named by the test set, the runs, and a digest of how it is `made`.

    Folders of several sweeps may be called alike, and so may files of sentences.
    """
    from translate.evaluation.comparison_page import comparison_page
    from translate.files import write
    from translate.plots.page import write_page

    others = ",".join(Path(one.name).name for one in comparison.challengers)
    digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()[:6]
    name = f"{shortened(f'{comparison.split}-against-{others}')}-{digest}"
    write_page(folder / f"{name}.html", comparison_page(comparison))
    command = {"command": shlex.join(["translate", *sys.argv[1:]])}
    described = json.dumps(command | comparison.as_dict(), ensure_ascii=False, indent=2)
    write(folder / f"{name}.json", f"{described}\n".encode("utf-8", "replace"))
    log.info("page: %s", folder / f"{name}.html")
