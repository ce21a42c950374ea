"""translate calibrate: how sure a translation is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt

from translate.cli.options import DEVICE, CorpusOptions, Device, Group, PathOption, search_problems
from translate.errors import UserError
from translate.names import on_demand

CALIBRATE = "translate.extras.calibration:calibrate"

USAGE = """\
  translate calibrate run=runs/demo
  translate text run=runs/demo format=json "¿Dónde está el tren?"   # has "confidence"

Translates the dev sentences of the run's corpus and learns from their references how the mean
log-probability of a translation predicts the chance that it is good; then reports how accurate
that is on the test sentences: expected calibration error (over ten bins of equally many sentences),
Brier score, and Spearman's rank correlation with chrF. Writes confidence.json in the run, which is
valid for these weights and this search only: with others, no confidence is given. The confidence of
a line is that of its least certain sentence.
"""


class CalibrateOptions(CorpusOptions):
    """The options of `translate calibrate`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    good: Annotated[float, Field(gt=0, lt=100)] = Field(
        50.0,
        description="the least sentence chrF at which a translation counts as good; about "
        "there it keeps the sense",
    )
    search: Annotated[Any, Group(check=search_problems)] = Field(
        None, description="how to search; default: as stored in the run"
    )
    device: Device = DEVICE
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once; null: 8192, on a GPU "
        "16384",
    )


def run(options: CalibrateOptions) -> None:
    """Learn on dev, judge on test, and write what was learned."""
    from translate.evaluation.test_sets import corpus_of_run
    from translate.inference import confidence
    from translate.inference.bundle import of_run
    from translate.inference.translator import load

    folder, good, search = Path(options.run), options.good, options.search
    bundle = of_run(folder)
    corpus, dev = corpus_of_run(
        folder, split="dev", data=options.data, tokenizer=options.tokenizer, cache=options.cache
    )
    if corpus.test is None:
        raise UserError(
            f"confidence is tested on test sentences, but the corpus of {folder} has none: choose "
            "a corpus that has some with data="
        )
    model = load(
        bundle, search=search, device=options.device, tokens_per_batch=options.tokens_per_batch
    )
    learned, judged = on_demand(CALIBRATE)(
        model, dev, corpus.test, good=good, weights_sha256=bundle.weights_sha256, search=search
    )
    confidence.write(folder, learned)
    sys.stdout.write(
        f"learned from {len(dev):,} dev sentences; good means chrF {good:g} or more\n"
        f"of {judged.sentences:,} test sentences, {judged.good:.1%} are good; "
        f"{judged.expected:.1%} were expected\n"
        f"expected calibration error {judged.calibration_error:.1%}; Brier score "
        f"{judged.brier:.3f}, against {judged.brier_of_share:.3f} for the overall share alone; "
        f"rank correlation with chrF {judged.rank_correlation:.3f}\n"
    )
