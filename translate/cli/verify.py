"""translate verify: a stored score, computed again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, Field, PositiveInt

from translate import config as schema
from translate.cli.options import Device, PathOption, RepeatedPath, SplitOptions
from translate.errors import UserError
from translate.inference.choices import Engine, Precision
from translate.inference.minimum_bayes_risk import Utility
from translate.names import on_demand
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


class Decoding(BaseModel):
    """The options of stored translations beside the search; those not stored are as here."""

    target: str | None = None
    engine: Engine = "native"
    workers: PositiveInt | None = None
    precision: Precision | None = None
    replace_unknown: bool = False
    mbr: Utility | None = None
    dictionary: str | None = None
    ensemble: str | None = None
    export: str | None = None
    shortlist: str | None = None


class VerifyOptions(SplitOptions):
    """The options of `translate verify`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    input: PathOption | None = Field(
        None, description="source sentences of your own that were evaluated, one per line, with"
    )
    reference: RepeatedPath = Field((), description="their translations, one per line")
    output: PathOption | None = Field(
        None,
        description="the folder that translate evaluate wrote to; default: evaluation/ in the run",
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:1 or mps")
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once; null: 8192, on a GPU "
        "16384",
    )


def run(options: VerifyOptions) -> None:
    """Translate and score again; a UserError lists the differences."""
    from translate.cli.engines import engine_translator
    from translate.cli.stored import load_bundle, test_set_options
    from translate.evaluation.judging import FILES
    from translate.evaluation.report import read
    from translate.evaluation.test_sets import read_test_set

    folder = Path(options.run)
    sha256 = load_bundle(str(folder)).weights_sha256
    test_set = read_test_set(folder, **test_set_options(options.job))
    evaluations = Path(options.output or folder / "evaluation")
    placed = test_set.placed(evaluations)
    if (evaluations / f"{placed.split}.json").is_file():  # else tell what changed
        test_set = placed
    path = evaluations / f"{test_set.split}.json"
    stored = read(evaluations, test_set.split)
    if stored is None:
        raise UserError(f"{path} does not exist: run translate evaluate first")
    decoding = _decoding(stored.decoding, path)
    model = engine_translator(
        decoding | {"device": options.device, "tokens_per_batch": options.tokens_per_batch},
        {"run": str(folder)} | {key: decoding[key] for key in FILES if decoding[key]},
    )
    lines = on_demand(DIFFERENCES)(stored, model, test_set, model_sha256=sha256)
    if lines:
        raise UserError(f"{path} differs from what is computed now:\n  " + "\n  ".join(lines))
    bleu = stored.figures["bleu"]
    sys.stdout.write(
        f"equal: {test_set.split}, BLEU {bleu['score']:.2f} ({bleu['signature']}), "
        f"{counted(len(test_set.sources), 'sentence')}, model {sha256[:12]}\n"
    )


def _decoding(stored: object, path: Path) -> dict[str, Any]:
    """The keys of `Decoding`, and `search`, of an evaluation that may come from a stranger."""
    from translate.cli.validation import search_problems

    search = dict(stored) if isinstance(stored, dict) else {"kind": stored}
    written = {key: search.pop(key) for key in Decoding.model_fields if key in search}
    if problems := schema.problems(Decoding, written, "decoding") + search_problems(search):
        raise UserError(f"{path} asks for settings that cannot be used: {listing(problems)}")
    return {**Decoding.model_validate(written).model_dump(), "search": search}
