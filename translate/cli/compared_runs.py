"""What `translate compare` knows of a run: its translations, and what it was made of."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from translate.cli.judging import evaluate_run
from translate.cli.stored import load_bundle, training_config
from translate.cli.stored_evaluations import Place, is_current
from translate.errors import UserError
from translate.evaluation.comparison import System
from translate.evaluation.run import Judging
from translate.inference.translator import load
from translate.training import provenance

log = logging.getLogger(__name__)

# a run may go on with others, but its result is another then
SHAPING = {f"trainer.{key}" for key in (
    "max_steps", "max_epochs", "patience", "devices", "num_nodes",
)}  # fmt: skip


def system(place: Place, *, seen: int) -> System:
    """A run's translations of the test set, which has been evaluated on it."""
    run, stored = place.run, place.read()
    assert stored is not None
    if stored.likelihood is None:
        raise UserError(
            f"every pair of {place.test_set.split} is too long for {run}, so it has no perplexity "
            "to compare: split the sentences"
        )
    return System(
        name=str(run),
        hypotheses=stored.hypotheses,
        likelihood=stored.likelihood,
        search=stored.decoding,
        experiment=experiment(run),
        settings=settings(run),
        circumstances=circumstances(run),
        seed=training_config(run).get("seed"),
        unfinished=_unfinished(run),
        languages=load_bundle(str(run)).config.languages,
        seen=seen,
        sha256=stored.figures["sha256"],
    )


def is_missing(place: Place) -> bool:
    """Whether a run has yet to be evaluated there, as it is now."""
    stored = place.read()
    return stored is None or not is_current(stored, place.run)


def evaluate(
    place: Place,
    *,
    turn: str,
    command: Sequence[str],
    device: str,
    tokens_per_batch: int | None,
    judging: Judging,
) -> None:
    """As `translate evaluate` would, with the run's own search; `turn` tells how many there are."""
    run, test_set = place.run, place.test_set
    if place.read() is not None:
        log.warning("the model of %s has changed since its evaluation: evaluating it again", run)
    where = "" if place.own else f", into {place.folder}: the run cannot be written to"
    log.info("evaluating %s on %s (%s)%s", run, test_set.split, turn, where)
    bundle = load_bundle(str(run))
    search = bundle.config.search
    evaluate_run(
        run,
        load(bundle, device=device, tokens_per_batch=tokens_per_batch),
        test_set,
        folder=place.folder,
        command=command,
        decoding={**search, "engine": "native", "replace_unknown": False, "dictionary": None},
        judging=judging,
        shown=0,
        attention=[],
    )


def experiment(run: Path) -> str:
    """What shaped the run but the seed; an average, or one without a configuration, is alone."""
    shared, record = settings(run), _record(run)
    if not shared or "mean of" in load_bundle(str(run)).config.extra:
        return str(run)
    text = record.get("corpus", training_config(run).get("data", {}).get("dir"))
    return json.dumps([shared, text, record.get("init")], sort_keys=True, default=str)


def settings(run: Path) -> dict[str, Any]:
    """The configuration by flat keys, with what `auto` came to; no seed, nor what is free.

    Keys without a value are none: runs from before there was a key have not got it. A vocabulary is
    known by its pieces, which `corpus` in the run's record counts, not by where it came from.
    """
    from translate.training import token_budget
    from translate.training.averaging import START
    from translate.training.settings import MAY_CHANGE, flat

    config = flat(training_config(run))
    free = {"seed", "tokenizer.pretrained"} | MAY_CHANGE - SHAPING
    record = _record(run)
    for key, fact in (
        ("trainer.precision", "precision"), ("data.tokens_per_batch", token_budget.KEY),
    ):  # fmt: skip
        if key in config and fact in record:
            config[key] = record[fact]
    if config.get("trainer.averaging.start", 0) is None:
        config["trainer.averaging.start"] = START.get(config["trainer.averaging.kind"], 0.0)
    return {key: value for key, value in config.items() if key not in free and value is not None}


def circumstances(run: Path) -> dict[str, str]:
    """Commit, device and versions of a training, which change its figures by little or by much.

    One that was resumed may have had several of each; of a run without a record nothing is known.
    """
    record = _record(run)
    calls = [record, *(record.get("calls") or [])]
    packages = dict.fromkeys(name for call in calls for name in call.get("versions", {}))
    found: dict[str, list[Any]] = {
        "commit": [_short(call.get("commit") or "") for call in calls],
        "device": [record.get("device")],
        **{name: [call.get("versions", {}).get(name) for call in calls] for name in packages},
    }
    told = {key: " then ".join(dict.fromkeys(filter(None, each))) for key, each in found.items()}
    return {key: value for key, value in told.items() if value}


def _short(commit: str) -> str:
    """With the + of a clone that was changed."""
    return commit[:10] + commit[40:]


def _record(run: Path) -> dict[str, Any]:
    return provenance.read(run) if (run / provenance.FILE).is_file() else {}


def _unfinished(run: Path) -> str | None:
    """The step of the model of a run whose training has not ended."""
    if provenance.run_status(run) != "unfinished":
        return None
    step = load_bundle(str(run)).config.extra.get("step", "unknown")
    last = training_config(run).get("trainer", {}).get("max_steps")
    return f"its model is of step {step}" + (f" of {last}" if last else "")
