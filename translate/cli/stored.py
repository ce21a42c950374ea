"""What a run carries for later commands: its bundle and its `config.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from translate.cli.arguments import Job
from translate.cli.errors import UsageError
from translate.compose import key_of
from translate.run_folder import configuration, paths_in

if TYPE_CHECKING:
    from translate.inference.bundle import Bundle


def load_bundle(run: str) -> Bundle:
    """The bundle of a run.

    Raises:
        UserError: the run holds no model that can be read.
    """
    from translate.inference import bundle

    return bundle.of_run(run)


def load_runs(verbatim: Mapping[str, str], target: str | None) -> Bundle:
    """The bundle of `run=`; of all together where `ensemble=` names further runs.

    `target` is the tag of the language to translate into, in place of the run's own.

    Raises:
        UserError: a run cannot be read, or they do not fit together, or have no such tag.
    """
    from translate.inference.bundle import together

    if "ensemble" not in verbatim:
        return load_bundle(verbatim["run"]).into(target)
    runs = [verbatim["run"], *paths_in(verbatim["ensemble"])]
    return together([(run, load_bundle(run)) for run in runs]).into(target)


def nodes_of(run: str | None, groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a run carries of some groups, to be had as `group=stored`; nothing where none is named.

    How it searches, and which corpus and tokenizer it was trained with.

    Raises:
        UserError: the run has no model, or no configuration, that can be read.
    """
    carried: dict[str, Any] = {}
    if run is not None and "search" in groups:
        carried["search"] = load_bundle(run).config.search
    if run is not None and "data" in groups:
        carried = configuration(run) | carried  # the search is the model's own
    return {group: carried.get(group, {}) for group in groups}


def refuse_corpus(job: Job) -> None:
    """Raise a UsageError where keys of a corpus stand beside files, which are read in its place."""
    for key in map(key_of, job.overrides):
        if key.partition(".")[0] in ("data", "tokenizer"):
            raise UsageError(
                f"{key}= and input= cannot be combined: {key}= chooses from the run's corpus, "
                "input= and reference= give sentences of your own; leave out one of the two"
            )


def test_set_options(job: Job) -> dict[str, Any]:
    """The arguments of `read_test_set` that a command line has: files, or a split of a corpus."""
    if {"input", "reference"} & set(job.verbatim):
        refuse_corpus(job)
    return {
        "split": job.config["data"].get("split", "test"),
        "input": job.verbatim.get("input"),
        "references": job.repeated.get("reference", ()),
        "domains": job.verbatim.get("domains"),
        **{key: job.config[key] for key in ("data", "tokenizer", "cache")},
    }
