"""The classes of the configuration's nodes: what each key means, and where it does nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from translate.compose import look_up, node_of
from translate.config import Node, OnlyWith, chosen, problems
from translate.names import on_demand

# group → the class of its nodes, or a table of classes by the key that names one
NODES = {
    "data": "translate.data.corpus:KINDS",
    "tokenizer": "translate.data.tokenizer:TokenizerConfig",
    "model": "translate.models.registry:families",
    "search": "translate.search:KINDS",
    "guard": "translate.inference.guard:GuardConfig",
    "optimizer": "translate.training.optim:OPTIMIZERS",
    "schedule": "translate.training.optim:SCHEDULES",
    "trainer": "translate.training.settings:TrainerConfig",
}


def node_classes(group: str) -> type[Node] | dict[str, type[Node]]:
    """Return the class of a group's nodes, or a class for each name that a node may have."""
    table = on_demand(NODES[group])
    if isinstance(table, type):
        return table
    owners: Mapping[str, Any] = table if isinstance(table, Mapping) else table()
    return {name: getattr(owner, "Config", owner) for name, owner in owners.items()}


def node_class(group: str, node: Mapping[str, Any]) -> type[Node] | None:
    """Return the class that reads a node of a group; None where the node names none."""
    classes = node_classes(group)
    if isinstance(classes, type):
        return classes
    return classes.get(node.get("kind", node.get("family", "")))


def group_problems(config: Mapping[str, Any], groups: Iterable[str]) -> list[str]:
    """Return everything that is wrong with the nodes of some groups, one line each."""
    lines = []
    for group in groups:
        node, classes = config.get(group), node_classes(group)
        if group == "guard" and node == {}:
            continue  # guard=none
        if not isinstance(node, Mapping):
            lines.append(f"{group} is missing")
        elif isinstance(classes, type):
            lines += problems(classes, node, group)
        else:
            lines += chosen(group, node, classes, key="family" if group == "model" else "kind")
    return lines


def fields_of(node: type[Node], place: str) -> Iterator[tuple[str, FieldInfo, type[Node]]]:
    """Yield the full key of each field of a node and of the nodes in it, the field, its node."""
    for name, field in node.model_fields.items():
        key = f"{place}.{name}"
        yield key, field, node
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, Node):
                yield from fields_of(inner, key)


def descriptions(group: str, option: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the full key, the default and the description of each key of an option."""
    values = node_of(group, option)
    node = node_class(group, values)
    for key, field, _ in fields_of(node, group) if node else ():
        default = look_up({group: values}, key)
        if field.description and key not in (f"{group}.kind", f"{group}.family"):
            yield key, default, with_choices(field)


def with_choices(field: FieldInfo) -> str:
    """Return the description of a field, and the names that it takes where that has not all."""
    meaning, names = field.description or "", list(map(str, get_args(field.annotation)))
    is_choice = get_origin(field.annotation) is Literal
    if not is_choice or set(names) <= set(re.split(r"[^\w-]+", meaning)):
        return meaning
    return f"{meaning} ({' | '.join(names)})"


def without_effect(
    config: Mapping[str, Any], typed: Collection[str], swept: Collection[str] = ()
) -> list[str]:
    """Return a line for each typed key that does nothing, since another key turns it off.

    Not where that key differs from job to job: a sweep has all combinations.
    """
    lines = []
    for group in sorted({key.partition(".")[0] for key in typed} & NODES.keys() & config.keys()):
        node = node_class(group, config[group] or {})
        for key, field, _ in fields_of(node, group) if node else ():
            for only in field.metadata if key in typed else ():
                place = key.rpartition(".")[0]
                switch = f"{place}.{only.key}" if isinstance(only, OnlyWith) else ""
                siblings = look_up(config, place)
                if not switch or not isinstance(siblings, Mapping) or only.is_met(siblings):
                    continue
                if not {switch, group, "experiment"} & set(swept):
                    lines.append(
                        f"{key} has no effect while {switch} = {siblings[only.key]}: set "
                        f"{switch}={only.example}, or leave it out"
                    )
    return lines
