"""translate verify: a stored score, computed again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from translate import config as schema
from translate.cli.options import (
    DEVICE,
    Device,
    PathOption,
    TestSetOptions,
    TranslatingOptions,
    search_problems,
)
from translate.errors import UserError
from translate.names import on_demand
from translate.run_folder import paths_in
from translate.wording import counted, listing

DIFFERENCES = "translate.extras.verification:differences"

USAGE = """\
  translate verify run=runs/demo                           # of the test sentences
  translate verify run=runs/demo data.split=dev
  translate verify run=runs/demo input=news.es reference=news.en output=scores

Reads evaluation/<split>.json, written by translate evaluate, translates with the search recorded
there, and compares: model, sources and references by their SHA-256, translations and scores to the
last bit. If all are equal, prints a line that says so and exits with status 0; otherwise prints
what differs and exits with status 1. On other hardware or another version of PyTorch, a few
translations may differ.
"""


class VerifyOptions(TestSetOptions):
    """The options of `translate verify`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    output: PathOption | None = Field(
        None,
        description="the folder that translate evaluate wrote to; default: evaluation/ in the run",
    )
    device: Device = DEVICE
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once; null: 8192, on a GPU "
        "16384",
    )


def run(options: VerifyOptions) -> None:
    """Translate and score again; a UserError lists the differences."""
    from translate.evaluation.report import read
    from translate.evaluation.test_sets import read_test_set
    from translate.inference import bundle
    from translate.inference.translator import load

    folder = Path(options.run)
    sha256 = bundle.of_run(folder).weights_sha256
    test_set = read_test_set(folder, **options.test_set)
    evaluations = Path(options.output or folder / "evaluation")
    placed = test_set.placed(evaluations)
    if (evaluations / f"{placed.split}.json").is_file():  # else tell what changed
        test_set = placed
    path = evaluations / f"{test_set.split}.json"
    stored = read(evaluations, test_set.split)
    if stored is None:
        raise UserError(f"{path} does not exist: run translate evaluate first")
    decoding = _decoding(stored.decoding, path, options)
    model = load(options.run, **decoding.loading())
    lines = on_demand(DIFFERENCES)(stored, model, test_set, model_sha256=sha256)
    if lines:
        raise UserError(f"{path} differs from what is computed now:\n  " + "\n  ".join(lines))
    bleu = stored.figures["bleu"]
    sys.stdout.write(
        f"equal: {test_set.split}, BLEU {bleu['score']:.2f} ({bleu['signature']}), "
        f"{counted(len(test_set.sources), 'sentence')}, model {sha256[:12]}\n"
    )


def _decoding(stored: object, path: Path, options: VerifyOptions) -> TranslatingOptions:
    """Return the settings of an evaluation that may come from a stranger, for this device."""
    search = dict(stored) if isinstance(stored, dict) else {"kind": stored}
    keys = TranslatingOptions.fields().keys() - {"run", "search", "device", "tokens_per_batch"}
    written: dict[str, Any] = {
        key: value for key in keys if (value := search.pop(key, None)) is not None
    }
    if isinstance(runs := written.get("ensemble"), str):
        written["ensemble"] = paths_in(runs)
    written |= {"run": options.run, "search": search, "device": options.device}
    wrong = schema.problems(TranslatingOptions, written, "decoding", combined=False)
    if wrong := [*wrong, *search_problems(search)]:
        raise UserError(f"{path} asks for settings that cannot be used: {listing(wrong)}")
    written["tokens_per_batch"] = options.tokens_per_batch
    return TranslatingOptions.model_validate(written)
