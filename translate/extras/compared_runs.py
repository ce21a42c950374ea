"""Compare runs: find or make their evaluations on a test set, and what each run was made of."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from translate.errors import UserError
from translate.evaluation.judging import NATIVE, Judging, evaluate_run, read_sha256
from translate.evaluation.metrics import choose_tokenizer
from translate.evaluation.report import Stored, read
from translate.evaluation.test_sets import TestSet, is_own_corpus, read_test_set, seen_in_training
from translate.extras.comparison import Comparison, compare
from translate.extras.pages import comparison_page
from translate.extras.seeds import System
from translate.files import check_folder, refuse_links, write
from translate.inference import bundle
from translate.inference.translator import load
from translate.run_folder import RECORD, configuration, read_record, status
from translate.training.settings import AVERAGING_STARTS, MAY_CHANGE, flat
from translate.wording import shortened

log = logging.getLogger(__name__)

# a run may go on with others, but its result is another then
SHAPING = {f"trainer.{key}" for key in (
    "max_steps", "max_epochs", "patience", "devices", "num_nodes",
)}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The place of a run's evaluation on a test set, whether it is there or to be made."""

    run: Path
    folder: Path
    test_set: TestSet  # by the name of its evaluation there

    @property
    def in_run(self) -> bool:
        """Tell whether it is in the run."""
        return self.folder == self.run / "evaluation"

    def read(self) -> Stored | None:
        """The evaluation; None where there is none yet."""
        return read(self.folder, self.test_set.split)

    def is_current(self) -> bool:
        """Tell whether there is an evaluation, and of the weights that the run has now."""
        stored = self.read()
        return stored is not None and (
            stored.figures["sha256"]["model"] == bundle.of_run(self.run).weights_sha256
        )


def compare_runs(
    runs: Sequence[str],
    *,
    test_set: Mapping[str, Any],
    output: str | Path | None,
    again: Callable[[Place], Sequence[str]],
    device: str,
    tokens_per_batch: int | None,
    resamples: int,
    trials: int,
    seed: int,
    tokenize: str | None,
    shown: int,
) -> tuple[Comparison, TestSet]:
    """Compare runs, the first with all others, and write the page and the figures.

    The test set is given by the arguments of `read_test_set`, and `again` gives those of the
    command that evaluates a run as it is done here; the others are options of `translate compare`.

    Raises:
        UserError: a run or an evaluation that cannot be compared, before another is evaluated.
    """
    for name in runs:  # a missing run is an error before another is evaluated
        bundle.of_run(name)
        refuse_links(Path(name), "evaluation")
    first = Path(runs[0])
    items = read_test_set(first, **test_set)
    folder = first / "evaluation" if output is None else Path(output)
    check_folder(folder)
    language = bundle.of_run(first).config.target_language
    tokenize = choose_tokenizer(tokenize, language, items.references)
    places = []
    for run in map(Path, runs):
        holds_name = test_set["input"] is not None or is_own_corpus(run, test_set["data"])
        seen_by_run = items
        if test_set["input"] is None:  # counts are of one run's training text, `test` its own name
            seen_by_run = replace(
                items, holds_name=holds_name, word_counts=items.word_counts if holds_name else None
            )
        places.append(find_place(run, seen_by_run, folder))
    _refuse_two_languages(places)
    for place in places:
        _check_stored(place)
    pending = [place for place in places if not place.is_current()]
    for number, place in enumerate(pending, start=1):
        _evaluate(
            place, turn=f"{number} of {len(pending)}",
            command=again(place), device=device, tokens_per_batch=tokens_per_batch,
            judging=Judging(tokenize, resamples, seed),
        )  # fmt: skip
    systems = []
    for place in places:
        seen = seen_in_training(place.run, items.sources, test_set["cache"])
        systems.append(system(place, seen=seen))
    comparison = compare(
        systems, items.sources, items.references,
        split=items.split, resamples=resamples, trials=trials, seed=seed, shown=shown,
        tokenize=tokenize,
    )  # fmt: skip
    hashes = items.sources_sha256, items.references_sha256
    _write(comparison, folder, [list(runs), *hashes, resamples, trials, seed, tokenize])
    return comparison, items


def find_place(run: Path, test_set: TestSet, output: Path) -> Place:
    """Find a place in the run; below `output` if it is to be made and the run is read-only."""
    folder = run / "evaluation"
    place = Place(run, folder, test_set.placed(folder))
    if not place.is_current():
        try:
            check_folder(folder)
        except UserError:
            path = run.absolute()  # runs in several folders may be called alike
            digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:6]
            folder = output / f"{shortened(path.name)}-{digest}"
            place = Place(run, folder, test_set.placed(folder))
    return place


def _refuse_two_languages(places: Sequence[Place]) -> None:
    """Refuse evaluations of one target language and of another, of runs that have several."""
    by_tag: dict[str | None, Path] = {}  # the tag asked for; None: the run's own
    for place in places:
        stored = place.read()
        by_tag.setdefault(stored.decoding.get("target") if stored else None, place.run)
    if len(by_tag) > 1:
        listed = " and ".join(
            f"{run} with target={tag or 'its own'}" for tag, run in by_tag.items()
        )
        raise UserError(
            f"these sentences were evaluated as {listed}: evaluate all runs with the same target= "
            "first, since scores are only comparable within one language"
        )


def _check_stored(place: Place) -> None:
    """Refuse an evaluation that is not the run's alone, or of files that have changed since.

    They are not evaluated again: their search is not the run's own, and they would be lost.
    """
    run, stored = place.run, place.read()
    if stored is None:
        return
    path = place.folder / f"{place.test_set.split}.json"
    if others := stored.decoding.get("ensemble"):
        raise UserError(
            f"{path} is the evaluation of an ensemble, {run} with {others}: evaluate {run} again "
            "without ensemble=, and give the ensemble its own output="
        )
    again = "repeat the evaluation with the command it records, or remove the file"
    try:
        now = read_sha256(run, stored.decoding)
    except UserError as error:
        raise UserError(
            f"{path} was made from something that no longer exists ({error}): {again}"
        ) from error
    if (target := stored.decoding.get("target")) and not place.is_current():
        raise UserError(
            f"{path} evaluates target={target} with a model that {run} no longer has: {again}"
        )
    vouched = stored.figures["sha256"]
    if changed := [key for key, sha256 in now.items() if vouched.get(key) != sha256]:
        raise UserError(f"the {' and '.join(changed)} changed since {path} was written: {again}")


def _evaluate(
    place: Place,
    *,
    turn: str,
    command: Sequence[str],
    device: str,
    tokens_per_batch: int | None,
    judging: Judging,
) -> None:
    """Evaluate as `translate evaluate`, by the run's own search; `turn` counts the evaluations."""
    run, test_set = place.run, place.test_set
    if place.read() is not None:
        log.warning("the model of %s has changed since its evaluation: evaluating it again", run)
    where = "" if place.in_run else f", into {place.folder}: the run cannot be written to"
    log.info("evaluating %s on %s (%s)%s", run, test_set.split, turn, where)
    loaded = bundle.of_run(run)
    evaluate_run(
        run,
        load(loaded, device=device, tokens_per_batch=tokens_per_batch),
        test_set,
        folder=place.folder,
        command=command,
        decoding={**loaded.config.search, **NATIVE},
        judging=judging,
        shown=0,
        attention=[],
    )


def system(place: Place, *, seen: int) -> System:
    """A run's translations of the test set, which has been evaluated on it."""
    run, stored = place.run, place.read()
    assert stored is not None
    if stored.likelihood is None:
        raise UserError(
            f"every pair of {place.test_set.split} is too long for {run}, so it has no perplexity "
            "to compare: split the sentences"
        )
    config = configuration(run)
    unfinished = None
    if status(run) == "unfinished":
        step = bundle.of_run(run).config.extra.get("step")
        last = config.get("trainer", {}).get("max_steps")
        unfinished = f"its model is of step {step}" + (f" of {last}" if last else "")
    return System(
        name=str(run),
        hypotheses=stored.hypotheses,
        likelihood=stored.likelihood,
        search=stored.decoding,
        experiment=experiment(run),
        settings=settings(run),
        circumstances=circumstances(run),
        seed=config.get("seed"),
        unfinished=unfinished,
        languages=bundle.of_run(run).config.languages,
        seen=seen,
        sha256=stored.figures["sha256"],
    )


def experiment(run: Path) -> str:
    """All that shaped a run but the seed; an average, or a run without configuration, is alone."""
    shared, record = settings(run), _record(run)
    if not shared or "mean of" in bundle.of_run(run).config.extra:
        return str(run)
    text = record.get("corpus", configuration(run).get("data", {}).get("dir"))
    return json.dumps([shared, text, record.get("init")], sort_keys=True, default=str)


def settings(run: Path) -> dict[str, Any]:
    """The configuration by flat keys, with the outcome of `auto`; no seed, nor what is free.

    Keys without a value are none: runs from before there was a key have not got it. A vocabulary is
    known by its pieces, which `corpus` in the run's record counts, not by where it came from.
    """
    config = flat(configuration(run))
    free = {"seed", "tokenizer.pretrained"} | MAY_CHANGE - SHAPING
    record = _record(run)
    for key in ("trainer.precision", "data.tokens_per_batch"):
        fact = key.partition(".")[2]
        if key in config and fact in record:
            config[key] = record[fact]
    if config.get("trainer.averaging.start", 0) is None:
        kind = config["trainer.averaging.kind"]
        config["trainer.averaging.start"] = AVERAGING_STARTS.get(kind, 0.0)
    return {key: value for key, value in config.items() if key not in free and value is not None}


def circumstances(run: Path) -> dict[str, str]:
    """Commit, device and versions of a training, which change its figures by little or by much.

    One that was resumed may have had several of each; of a run without a record nothing is known.
    """
    record = _record(run)
    calls = [record, *(record.get("calls") or [])]
    packages = dict.fromkeys(name for call in calls for name in call.get("versions", {}))
    commits = (call.get("commit") or "" for call in calls)
    values: dict[str, list[Any]] = {
        "commit": [commit[:10] + commit[40:] for commit in commits],  # + of a clone with changes
        "device": [record.get("device")],
        **{name: [call.get("versions", {}).get(name) for call in calls] for name in packages},
    }
    texts = {key: " then ".join(dict.fromkeys(filter(None, each))) for key, each in values.items()}
    return {key: text for key, text in texts.items() if text}


def _record(run: Path) -> dict[str, Any]:
    return read_record(run) if (run / RECORD).is_file() else {}


def _write(comparison: Comparison, folder: Path, made: Sequence[object]) -> None:
    """The page and the figures, named by the test set, the runs, and a digest of how it is `made`.

    Folders of several sweeps may be called alike, and so may files of sentences.
    """
    others = ",".join(Path(one.name).name for one in comparison.challengers)
    digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()[:6]
    name = f"{shortened(f'{comparison.split}-against-{others}')}-{digest}"
    write(folder / f"{name}.html", comparison_page(comparison).encode("utf-8", "replace"))
    command = {"command": shlex.join(["translate", *sys.argv[1:]])}
    described = json.dumps(command | comparison.as_dict(), ensure_ascii=False, indent=2)
    write(folder / f"{name}.json", f"{described}\n".encode("utf-8", "replace"))
    log.info("page: %s", folder / f"{name}.html")
