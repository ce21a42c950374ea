"""Checks every node of a configuration against what will receive it, before the heavy work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import reduce
from typing import Any, NamedTuple

from translate import config as schema
from translate.cli.fields import Node
from translate.compose import key_of
from translate.config import chosen


def _among(*values: object) -> Callable[[object], bool]:
    return values.__contains__


def _but(*values: object) -> Callable[[object], bool]:
    return lambda value: value not in values  # what is no value at all is told as such, later


class Switch(NamedTuple):
    """A key without which others have no effect."""

    key: str
    on: object  # a value that gives them one, for the message
    is_on: Callable[[Any], object]
    idle: tuple[str, ...] = ()  # what does nothing while it is off; none: all beside it


SWITCHES = (
    Switch("trainer.minimum_risk.weight", 0.8, bool),
    Switch("trainer.guided_alignment.weight", 0.05, bool),
    Switch("trainer.averaging.kind", "ema", _among("ema", "last")),
    Switch("trainer.averaging.kind", "ema", _among("ema", "none"), ("trainer.averaging.decay",)),
    Switch("search.length_penalty", "gnmt", _but("none", "average"), ("search.alpha",)),
    Switch("search.groups", 2, _but(1), ("search.diversity_strength",)),
)


def corpus_problems(run: Callable[..., None], config: Mapping[str, Any]) -> list[str]:
    """Every problem of what a command that reads a corpus gives its `run`, one line each."""
    from translate.data.corpus import check_data
    from translate.data.tokenizer import check_tokenizer

    found = schema.problems(run, config, "")
    return found or [*check_data(config["data"]), *check_tokenizer(config["tokenizer"])]


def training_problems(config: Mapping[str, Any]) -> list[str]:
    """Every problem of what `translate train` was given, one line each."""
    from translate.data.corpus import check_data
    from translate.data.tokenizer import check_tokenizer
    from translate.models import registry
    from translate.training.optim import OPTIMIZERS, SCHEDULES
    from translate.training.settings import TrainerConfig

    receivers: dict[str, Callable[[Node], list[str]]] = {
        "data": check_data,
        "tokenizer": check_tokenizer,
        "model": registry.problems,
        "search": search_problems,
        "optimizer": lambda node: chosen("optimizer", node, OPTIMIZERS),
        "schedule": lambda node: chosen("schedule", node, SCHEDULES),
        "trainer": lambda node: schema.problems(TrainerConfig, node, "trainer"),
    }
    found = [problem for name, check in receivers.items() for problem in check(config[name])]
    return found or [
        *_problems_of_recurrence(config["model"]["family"], config["trainer"]),
        *_problems_of_tying(config["model"], config["tokenizer"]),
        *_problems_of_risk(config["data"], config["trainer"]),
        *_problems_of_r_drop(config["model"], config["trainer"]),
    ]


def _problems_of_recurrence(family: str, trainer: Node) -> list[str]:
    """A loop over words has no layers to compute again, and is another program at each length."""
    from translate.models.registry import families

    if families()[family].parallel:
        return []
    able = " and ".join(name for name, model in families().items() if model.parallel)
    return [
        f"trainer.{key} = true: model.family={family} reads word by word, but this option needs "
        f"layers that read all words at once ({able}); set it to false"
        for key in ("activation_checkpointing", "compile")
        if trainer[key]
    ]


def _problems_of_tying(model: Node, tokenizer: Node) -> list[str]:
    """Two vocabularies may even have the same size, and piece 7 of each still another meaning."""
    if model["tied_embeddings"] != "all" or tokenizer["joint"]:
        return []
    return [
        "model.tied_embeddings = all shares the embeddings of source and target, but "
        "tokenizer.joint = false gives each its own vocabulary: set model.tied_embeddings=decoder "
        "or tokenizer.joint=true"
    ]


def _problems_of_risk(data: Node, trainer: Node) -> list[str]:
    """What `auto` measures are steps without candidates, which need many times the memory."""
    weight, candidates = (trainer["minimum_risk"][key] for key in ("weight", "candidates"))
    if not weight or data["tokens_per_batch"] != "auto":
        return []
    return [
        "data.tokens_per_batch = auto does not allow for the candidates that "
        f"trainer.minimum_risk.weight = {weight} samples: give a number, for instance what fits "
        f"without them, divided by twice trainer.minimum_risk.candidates ({candidates})"
    ]


def _problems_of_r_drop(model: Node, trainer: Node) -> list[str]:
    """Without dropout its two passes are one, twice."""
    dropped = [trainer["word_dropout"], *(model[key] for key in model if key.endswith("dropout"))]
    if not trainer["r_drop"] or any(dropped):
        return []
    return [
        f"trainer.r_drop = {trainer['r_drop']} compares two passes with different dropout, but "
        "dropout is off: set model.dropout=0.1 or trainer.r_drop=0"
    ]


def without_effect(
    config: Mapping[str, Any], overrides: Iterable[str], swept: Set[str] = frozenset()
) -> list[str]:
    """What of the keys that a person has given does nothing, for something else is off.

    Not where that differs from job to job: a sweep has all combinations.
    """
    given = set(map(key_of, overrides))
    found = []
    for switch, on, is_on, keys in (*SWITCHES, *_switches_of_model(config, given)):
        place, _, name = switch.rpartition(".")
        node = _node(config, place)
        varied = swept & {switch, switch.partition(".")[0], "experiment"}
        if name not in node or is_on(node[name]) or varied:
            continue
        idle = set(keys or (f"{place}.{each}" for each in node)) - {switch}
        found += [
            f"{key} has no effect while {switch} = {node[name]}: set {switch}={on}, or leave it out"
            for key in sorted(idle & given)
        ]
    return found


def _switches_of_model(config: Mapping[str, Any], given: Set[str]) -> list[Switch]:
    """The switches of the model's family, if one of its keys is given."""
    if not any(key.startswith("model.") for key in given):
        return []
    from translate.models.registry import families

    model = families().get(str(_node(config, "model").get("family")))
    return [
        Switch(f"model.{only.key}", only.values[0], _among(*only.values), (f"model.{key}",))
        for key, field in (model.Config.model_fields.items() if model else ())
        for only in field.metadata
        if isinstance(only, schema.OnlyWith)
    ]


def _node(config: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The node at a dotted `place`, empty where the configuration has none."""
    return reduce(lambda node, key: node.get(key) or {}, place.split("."), config)


def search_problems(node: Node) -> list[str]:
    """The node `search`."""
    from translate.search import problems

    return problems(node)


def guard_problems(node: Node) -> list[str]:
    """The node `guard`; an empty one is `guard=none`."""
    from translate.inference.guard import GuardConfig

    return schema.problems(GuardConfig, node, "guard") if node else []


def mbr_problems(mbr: str | None, search: Node) -> list[str]:
    """Of one translation, which is the default, there is none to choose."""
    if mbr is None or search.get("n_best", 1) > 1:
        return []
    return [
        f"mbr = {mbr} chooses among several translations: set search.n_best, for "
        "instance search=sample search.n_best=30"
    ]
