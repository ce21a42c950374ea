"""translate compare: runs side by side, and whether their differences are more than chance."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from translate.cli.arguments import Arguments, whole_run
from translate.cli.options import DEVICE, Device, PathOption, Sentences, TestSetOptions
from translate.errors import UsageError
from translate.names import on_demand

log = logging.getLogger(__name__)

COMPARED_RUNS = "translate.extras.compared_runs"
COMPARISON = "translate.extras.comparison"

USAGE = """\
  translate compare runs/a runs/b
  translate compare runs/a runs/b runs/c data.split=dev
  translate compare runs/a runs/b input=news.es reference=news.en
  translate train experiment=toy --multirun seed=1,2,3 run=runs/toy
  translate compare runs/toy-seed=1 runs/toy-seed=2 runs/toy-seed=3
  translate compare runs/a runs/b table=csv > scores.csv

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


class CompareOptions(TestSetOptions):
    """The options of `translate compare`."""

    usage: ClassVar[str] = USAGE

    runs: Sentences = ()
    output: PathOption | None = Field(
        None,
        description="the folder of the page and the JSON; default: evaluation/ in the first run; "
        "what is missing of a run that cannot be written to is put in a folder there",
    )
    device: Device = DEVICE
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
    table: Literal["csv"] | None = Field(
        None,
        description="csv: standard output is a table alone, with a row for "
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
    """Compare the runs and print the comparison."""
    from translate.cli.streams import show

    runs = _runs(options.runs)
    _tell_left_out(options.runs, runs)
    comparison, test_set = on_demand(f"{COMPARED_RUNS}:compare_runs")(
        runs,
        test_set=options.test_set,
        output=options.output,
        again=partial(_again, options),
        device=options.device,
        tokens_per_batch=options.tokens_per_batch,
        resamples=options.resamples,
        trials=options.trials,
        seed=options.seed,
        tokenize=options.tokenize,
        shown=options.shown,
    )
    if options.table is None:
        show(on_demand(f"{COMPARISON}:render")(comparison))
        return
    for caveat in comparison.caveats:  # in the log: standard output holds a table alone
        log.warning("%s", caveat)
    for verdict in comparison.verdicts:
        log.info("%s", verdict)
    sys.stdout.write(on_demand(f"{COMPARISON}:as_csv")(comparison, test_set.references))


def _runs(named: Sequence[str]) -> list[str]:
    """The folders of runs; a folder that is no run but holds some stands for them, by name."""
    runs: list[str] = []
    for name in map(whole_run, named):
        path = Path(name)
        inside = [str(folder) for folder in sorted(path.glob("*/")) if _is_run(folder)]
        runs += [name] if _is_run(path) or not inside else inside
    return [str(Path(name)) for name in runs]


def _tell_left_out(named: Sequence[str], runs: Sequence[str]) -> None:
    """Warn of trainings in a folder of runs that ended before their bundle: no mean has them."""
    folders = [Path(name) for name in named if str(Path(whole_run(name))) not in runs]
    begun = [file.parent for folder in folders for file in sorted(folder.glob("*/config.yaml"))]
    if left_out := [str(folder) for folder in begun if not _is_run(folder)]:
        log.warning("left out, because they have no bundle: %s", ", ".join(left_out))


def _is_run(folder: Path) -> bool:
    from translate.inference.bundle import CHECKSUMS

    # a config.json alone: exports have one too
    return (folder / "bundle").is_dir() or (folder / CHECKSUMS).is_file()


def _again(options: CompareOptions, place: Any) -> list[str]:
    """Return the arguments of a run's evaluation; of another corpus than the run's, ours."""
    from translate.evaluation.test_sets import is_own_corpus

    if options.input is not None:
        text = [f"reference={path}" for path in options.reference]
        text.append(f"input={options.input}")
    elif is_own_corpus(place.run, options.data):
        text = [f"data.split={options.split}"]
    else:
        return sys.argv[1:]
    kept = [each for each in options.overrides if not each.startswith(NOT_OF_EVALUATE)]
    kept += [] if place.in_run else [f"output={place.folder}"]
    return ["evaluate", f"run={place.run}", *text, *kept]
