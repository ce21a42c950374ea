"""What a run carries for later commands: its bundle and its `config.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from translate.cli.arguments import paths_in
from translate.cli.commands import Job
from translate.cli.errors import UsageError
from translate.compose import key_of, literal
from translate.errors import UserError, first_line

if TYPE_CHECKING:
    import pyarrow

    from translate.data.corpus import Corpus
    from translate.inference.bundle import Bundle

KEYS = ("data", "tokenizer", "model", "optimizer", "schedule", "trainer", "search", "seed", "cache")
LARGEST, DEEPEST = 1 << 18, 16  # bytes and levels of a config.yaml
SPLITS = ("test", "dev")  # of a run's own corpus, that it can be judged on


@lru_cache(maxsize=8)  # once for the configuration and every job of a sweep
def load_bundle(run: str) -> Bundle:
    """The bundle of a run.

    Raises:
        UserError: the run holds no model that can be read.
    """
    from translate.inference import bundle

    return bundle.load(bundle.find(run))


def load_runs(verbatim: Mapping[str, str], target: str | None) -> Bundle:
    """The bundle of `run=`; of all together where `ensemble=` names further runs.

    `target` is the tag of the language to translate into, in place of the run's own.

    Raises:
        UserError: a run cannot be read, or they do not fit together, or have no such tag.
    """
    from translate.inference.bundle import together

    if "ensemble" not in verbatim:
        return into(load_bundle(verbatim["run"]), target)
    runs = [verbatim["run"], *paths_in(verbatim["ensemble"])]
    return into(together([(run, load_bundle(run)) for run in runs]), target)


def into(bundle: Bundle, target: str | None) -> Bundle:
    """The bundle with another tag before every source; null leaves its own.

    Raises:
        UserError: it was trained with no such tag.
    """
    if target is None:
        return bundle
    tags = bundle.tokenizers.source.tags
    if target not in tags:
        there = f"it has {', '.join(tags)}" if tags else "it was trained without tags"
        raise UsageError(f"target = {target!r} is not a tag of this run: {there}")
    return replace(bundle, tokenizers=bundle.tokenizers.tagged(target))


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
        carried = training_config(run) | carried  # the search is the model's own
    return {group: carried.get(group, {}) for group in groups}


def corpus_of_run(run: Path, config: Mapping[str, Any], split: str) -> tuple[Corpus, pyarrow.Table]:
    """The corpus a run was trained on, by the keys data, tokenizer and cache; a split's table.

    Raises:
        UserError: the run does not say what it was trained on, or there is no such split.
    """
    from translate.data.corpus import prepare, read_nodes
    from translate.data.tokenizer import own_vocabulary

    if split not in SPLITS:
        raise UsageError(f"data.split = {split!r}: must be {' or '.join(map(repr, SPLITS))}")
    data = {key: value for key, value in config["data"].items() if key != "split"}
    if not data:
        raise UserError(
            f"{run} has no config.yaml that names its corpus: give data= and tokenizer=, or "
            "input=FILE reference=FILE where the command has those keys"
        )
    source, tokenizer = read_nodes(data, config["tokenizer"])
    if config["tokenizer"] == training_config(run).get("tokenizer"):
        tokenizer = own_vocabulary(tokenizer, run)
    corpus = prepare(source, tokenizer, cache=Path(config["cache"]))
    table = corpus.test if split == "test" else corpus.dev
    if table is None:
        raise UserError(
            "this corpus has no test split: use data.split=dev, or input=FILE reference=FILE"
        )
    return corpus, table


def refuse_corpus(job: Job) -> None:
    """Raise a UsageError where keys of a corpus stand beside files, which are read in its place."""
    for key in map(key_of, job.overrides):
        if key.partition(".")[0] in ("data", "tokenizer"):
            raise UsageError(
                f"{key}= and input= cannot be combined: {key}= chooses from the run's corpus, "
                "input= and reference= give sentences of your own; leave out one of the two"
            )


def names_a_corpus(job: Job) -> bool:
    """Whether `data=` says more than where the corpus lies, and how its sentences are read."""
    from translate.data.corpus import BATCHING

    reading = {f"data.{key}" for key in (*BATCHING, "dir", "split", "domain")}
    keys = set(map(key_of, job.overrides)) - reading
    return any(key == "data" or key.startswith("data.") for key in keys)


def training_config(run: str | Path) -> dict[str, Any]:
    """The configuration a run was started with; empty where the folder has none.

    Hydra composes with it, once it is `literal`, and Hydra obeys much that a configuration can say:
    the folder may come from a stranger, so that only plain values under the keys of a training
    pass.

    Raises:
        UserError: the file is there and cannot be read, or says more than a training writes.
    """
    file = Path(run) / "config.yaml"
    if not file.is_file():
        return {}
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}") from error
    return deepcopy(_plain_values(content, file))


@lru_cache(maxsize=32)  # a comparison asks for those of its runs a dozen times
def _plain_values(content: bytes, file: Path) -> dict[str, Any]:
    """What is written there, once it has been found to be a configuration and no more."""
    if len(content) > LARGEST:
        raise UserError(
            f"{file} is larger than {LARGEST:,} bytes: translate train never writes one that large"
        )
    try:
        text = content.decode()
        _check_shape(text, file)
        config = yaml.safe_load(text)
        OmegaConf.create(literal(config))  # which takes no dates, nor whatever else YAML knows
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} does not contain a configuration")
    strange = [str(key) for key in config if key not in KEYS] + list(_orders(config))
    if strange:
        raise UserError(
            f"{file} contains {', '.join(strange)}, which translate train never writes: remove it "
            "if you know what it is for"
        )
    return config


def _check_shape(text: str, file: Path) -> None:
    """Refuse what would take forever to read, before it is read: it is looked at as it comes."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
            raise UserError(
                f"{file} refers to itself (*) or is more than {DEEPEST} levels deep, which no "
                "training writes"
            )


def _orders(node: Any, place: str = "") -> Iterator[str]:
    """Where a configuration tells Hydra to do something rather than what a value is."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        for key, value in node.items():
            name = f"{place}{key}"
            if str(key) == "defaults" or str(key).startswith("_"):
                yield name
            yield from _orders(value, f"{name}.")
