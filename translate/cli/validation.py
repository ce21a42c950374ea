"""Checks every node of a configuration against what will receive it, before the heavy work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from translate import schema
from translate.wording import nearest

Node = Mapping[str, Any]


def training_problems(config: Node) -> list[str]:
    """Every problem of what `translate train` was given, one line each."""
    from translate.data.corpus import check_data
    from translate.data.tokenizer import check_tokenizer
    from translate.training.optim import OPTIMIZERS, SCHEDULES
    from translate.training.settings import Settings

    receivers: dict[str, Callable[[Node], list[str]]] = {
        "data": check_data,
        "tokenizer": check_tokenizer,
        "model": model_problems,
        "search": search_problems,
        "optimizer": lambda node: chosen("optimizer", node, OPTIMIZERS),
        "schedule": lambda node: chosen("schedule", node, SCHEDULES),
        "trainer": lambda node: schema.problems(Settings, node, "trainer"),
    }
    found = [problem for name, check in receivers.items() for problem in check(config[name])]
    return found or [
        *_problems_of_recurrence(config["model"]["family"], config["trainer"]),
        *_problems_of_tying(config["model"], config["tokenizer"]),
        *_problems_of_risk(config["data"], config["trainer"]),
    ]


def _problems_of_recurrence(family: str, trainer: Node) -> list[str]:
    """A loop over words has no layers to compute again, and is another program at each length."""
    from translate.models.registry import families

    if families()[family].parallel:
        return []
    able = " and ".join(name for name, model in families().items() if model.parallel)
    return [
        f"trainer.{key} = true: model.family={family} reads word by word, and this is for layers "
        f"that read all words at once ({able}); set it to false"
        for key in ("activation_checkpointing", "compile")
        if trainer[key]
    ]


def _problems_of_tying(model: Node, tokenizer: Node) -> list[str]:
    """Two vocabularies may even have the same size, and piece 7 of each still another meaning."""
    if model["tied_embeddings"] != "all" or tokenizer["joint"]:
        return []
    return [
        "model.tied_embeddings = all shares the embeddings of source and target, which "
        "tokenizer.joint = false numbers apart: model.tied_embeddings=decoder, or "
        "tokenizer.joint=true"
    ]


def _problems_of_risk(data: Node, trainer: Node) -> list[str]:
    """What `auto` measures are steps without candidates, which need many times the memory."""
    weight, candidates = (trainer["minimum_risk"][key] for key in ("weight", "candidates"))
    if not weight or data["tokens_per_batch"] != "auto":
        return []
    return [
        f"data.tokens_per_batch = auto does not know the candidates of "
        f"trainer.minimum_risk.weight = {weight}: give a number, such as what fits without them "
        f"divided by twice trainer.minimum_risk.candidates ({candidates})"
    ]


def model_problems(node: Node) -> list[str]:
    """The node `model`: types and ranges first, then what the family says of the combination."""
    from translate.models.registry import families

    sizes = {
        "source_vocab_size": 1,
        "target_vocab_size": 1,
    }  # the tokenizer's business, not the node's
    found = chosen("model", node, families(), key="family", supplied=tuple(sizes))
    if found:
        return found
    options = {name: value for name, value in node.items() if name != "family"}
    return families()[node["family"]].problems({**options, **sizes})


def search_problems(node: Node) -> list[str]:
    """The node `search`."""
    from translate.inference.bundle import search_excesses
    from translate.search import KINDS

    return chosen("search", node, KINDS) or search_excesses(node, "search")


def mbr_problems(config: Node) -> list[str]:
    """Of one translation, which is the default, there is none to choose."""
    if config["mbr"] is None or config["search"].get("n_best", 1) > 1:
        return []
    return [
        f"mbr = {config['mbr']} chooses among several translations: give search.n_best=… "
        "(search=sample search.n_best=30)"
    ]


def chosen(
    where: str,
    node: Node,
    receivers: Mapping[str, schema.Schema],
    *,
    key: str = "kind",
    supplied: tuple[str, ...] = (),
) -> list[str]:
    """A node whose `key` names its receiver: the others are that receiver's keywords."""
    name = node.get(key)
    if not isinstance(name, str) or name not in receivers:
        return [f"{where}.{key} = {name!r}: no such {key}{nearest(str(name), receivers)}"]
    options = {option: value for option, value in node.items() if option != key}
    return schema.problems(receivers[name], options, where, supplied=supplied)
