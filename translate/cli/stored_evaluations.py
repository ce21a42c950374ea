"""Which evaluations stored with runs compare: of the run alone, its weights, and these files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from translate.cli.commands import shortened
from translate.cli.judging import read_sha256
from translate.cli.stored import load_bundle
from translate.errors import UserError
from translate.evaluation.report import Stored, read
from translate.evaluation.run import TestSet
from translate.files import check_folder


@dataclass(frozen=True)
class Place:
    """Where the evaluation of a run on a test set is, or is to be."""

    run: Path
    folder: Path
    test_set: TestSet  # by the name of its evaluation there

    @property
    def own(self) -> bool:
        """Whether it is in the run."""
        return self.folder == self.run / "evaluation"

    def read(self) -> Stored | None:
        """The evaluation; None where there is none yet."""
        return read(self.folder, self.test_set.split)


def find_place(run: Path, test_set: TestSet, output: Path) -> Place:
    """In the run; below `output` where one would have to be made in a run that is read-only."""
    folder = run / "evaluation"
    place = Place(run, folder, test_set.placed(folder))
    if (stored := place.read()) is not None and is_current(stored, run):
        return place
    try:
        check_folder(folder)
    except UserError:
        path = run.absolute()  # runs in several folders may be called alike
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:6]
        folder = output / f"{shortened(path.name)}-{digest}"
        place = Place(run, folder, test_set.placed(folder))
    return place


def refuse_two_languages(places: Sequence[Place]) -> None:
    """Of runs with several target languages, evaluations of one and of another say nothing."""
    found: dict[str | None, Path] = {}  # the tag asked for; None: the run's own
    for place in places:
        stored = place.read()
        found.setdefault(stored.decoding.get("target") if stored else None, place.run)
    if len(found) > 1:
        told = " and ".join(f"{run} with target={tag or 'its own'}" for tag, run in found.items())
        raise UserError(
            f"these sentences were evaluated as {told}: evaluate all runs with the same target= "
            "first, since scores are only comparable within one language"
        )


def check_stored(place: Place) -> None:
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
    if (target := stored.decoding.get("target")) and not is_current(stored, run):
        raise UserError(
            f"{path} evaluates target={target} with a model that {run} no longer has: {again}"
        )
    vouched = stored.figures["sha256"]
    if changed := [key for key, sha256 in now.items() if vouched.get(key) != sha256]:
        raise UserError(f"the {' and '.join(changed)} changed since {path} was written: {again}")


def is_current(stored: Stored, run: Path) -> bool:
    """Whether an evaluation is of the weights the run has now."""
    current: bool = stored.figures["sha256"]["model"] == load_bundle(str(run)).weights_sha256
    return current
