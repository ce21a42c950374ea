"""The nodes of the configuration: each is a pydantic model beside the class it configures.

The names of the fields are the valid keys, their annotations types and ranges::

    class TransformerConfig(Node):
        d_model: PositiveInt = Field(description="size of a word's vector")
        dropout: Annotated[float, Field(ge=0, lt=1)] = Field(description="rate of dropout")
        norm: Literal["pre", "post"] = Field(description="where layers are normalised")

    problems(TransformerConfig, {"d_model": 0, "nrom": "pre", "dropout": 0.1}, "model")
    # ["model.d_model = 0: must be greater than 0",
    #  "model.nrom is not a key; did you mean model.norm?",
    #  "model.norm is missing"]

Defaults stand in `conf/`, and those of a command's options in its fields.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from translate.errors import UserError
from translate.wording import listing, nearest


class OnlyWith:
    """The values of a key that give another key beside it an effect.

    Written beside the type of the key that it is about::

        window: Annotated[PositiveInt, OnlyWith("self_attention", "sliding_window")]
        metric: Annotated[Utility, OnlyWith("weight", example=0.8)]

    Args:
        key: the other key.
        values: its values that do; without any, all that are true.
        example: the value that an error suggests; default: the first of `values`.
    """

    def __init__(self, key: str, *values: object, example: object = None) -> None:
        self.key, self.values = key, values
        self.example = values[0] if values else example

    def is_met(self, node: Mapping[str, Any]) -> bool:
        """Tell whether the other key has such a value in this node."""
        value = node.get(self.key)
        return value in self.values if self.values else bool(value)


class Node(BaseModel):
    """A node of the configuration: its keys with their types, ranges and descriptions.

    It stands beside the class that it configures. Defaults stand in `conf/`, so its fields have
    none; each has a `Field(description=...)`, of which help and documentation are made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    place: ClassVar[str] = ""
    """The place that `contradictions` names its keys by; a node that stands elsewhere is reported
    under the place where it stands. Empty: it stands in one place only."""

    def contradictions(self) -> Iterator[str]:
        """Yield a line for each combination of keys that cannot be: places, values, remedy.

        The types and ranges of all keys are known to be right.
        """
        yield from ()


NodeType = TypeVar("NodeType", bound=Node)


def read(node_class: type[NodeType], values: Mapping[str, Any], where: str) -> NodeType:
    """Read the node at place `where`; a UserError lists all its problems."""
    check(problems(node_class, values, where))
    return node_class.model_validate(dict(values))


def problems(
    schema: type[BaseModel], values: Mapping[str, Any], where: str, *, combined: bool = True
) -> list[str]:
    """Return every problem of one configuration node, one line each.

    Args:
        schema: the class of the node.
        values: the node, as plain containers.
        where: the node's place in the configuration (`model`), written before every key.
        combined: whether contradictions between keys of valid values count.

    Types are strict: `"8"` and `8.5` are no integers, `true` is no number; an integer will do as a
    float.
    """
    lines = [
        f"{place} = {_shown(text)}: must be UTF-8: rename the file or folder, or write the value so"
        for place, text in _undecoded(values, where)
    ]
    lines += [
        f"{place}: {key!r} is a number or the like, not a name: write it in quotes"
        for place, key in _unnamed(values, where)
    ]
    content = json.dumps(dict(values), default=_plain, ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    try:
        # as JSON: strict there still takes a list for a tuple and text for a path, YAML's only ways
        node = _adapter(schema).validate_json(content, strict=True)
    except ValidationError as error:
        return lines + _lines(error, schema, values, where)
    return lines or list(_contradictions(node, where) if combined else ())


def _contradictions(value: Any, where: str) -> Iterator[str]:
    """Yield those of a node at place `where` and of all nodes in it."""
    if isinstance(value, Node):
        for line in value.contradictions():
            yield line.replace(f"{value.place}.", f"{where}.") if value.place else line
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _contradictions(each, ".".join(filter(None, [where, str(name)])))


def chosen(
    where: str,
    node: Mapping[str, Any],
    receivers: Mapping[str, type[BaseModel]],
    *,
    key: str = "kind",
) -> list[str]:
    """Return every problem of a node whose `key` names the class of the others."""
    wrong = misnamed(where, node, receivers, key=key)
    return wrong or problems(receivers[node[key]], node, where)


def misnamed(
    where: str, node: Mapping[str, Any], receivers: Collection[str], *, key: str = "kind"
) -> list[str]:
    """Return the problem of a node whose `key` names none of its classes."""
    name = node.get(key)
    if isinstance(name, str) and name in receivers:
        return []
    return [f"{where}.{key} = {name!r}: no such {key}{nearest(str(name), receivers)}"]


def check(problems: Iterable[str], error: type[UserError] = UserError) -> None:
    """Raise one error that lists all problems, if there are any."""
    if lines := list(problems):
        raise error(listing(lines))


@lru_cache  # to build one takes ten times as long as to use it
def _adapter(schema: type[BaseModel]) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _undecoded(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield texts of bytes that are not UTF-8 (in Python surrogates), which no file can hold."""
    if isinstance(value, str | PurePath) and re.search("[\ud800-\udfff]", str(value)):
        yield place.encode("utf-8", "backslashreplace").decode(), str(value)
    inner = value.items() if isinstance(value, Mapping) else ()
    for key, each in enumerate(value) if isinstance(value, list | tuple) else inner:
        below = ".".join(filter(None, [place, str(key)]))
        yield from _undecoded(key, below)
        yield from _undecoded(each, below)


def _unnamed(value: Any, place: str) -> Iterator[tuple[str, object]]:
    """Yield keys that are no text: in JSON, which is checked afterwards, all are."""
    if not isinstance(value, Mapping):
        return
    for key, each in value.items():
        if not isinstance(key, str):
            yield place, key
        yield from _unnamed(each, f"{place}.{key}")


def _lines(
    error: ValidationError, schema: type[BaseModel], values: Mapping[str, Any], where: str
) -> list[str]:
    """Return pydantic's errors as lines; those of one value, one a branch of a union, share one."""
    reasons: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        path, value = _descend(values, item["loc"])
        place = ".".join(filter(None, [where, *path]))
        if item["type"] == "missing":
            line = f"{'.'.join(filter(None, [place, str(item['loc'][-1])]))} is missing"
            reasons[line] = []
        elif item["type"] == "union_tag_not_found":
            key = item["ctx"]["discriminator"].strip("'")
            reasons[f"{place}.{key} is missing"] = []
        elif item["type"] == "union_tag_invalid":
            key, *names = re.findall(
                "'(.*?)'", "{discriminator}, {expected_tags}".format(**item["ctx"])
            )
            reasons |= {line: [] for line in misnamed(place, value, names, key=key)}
        elif item["type"] == "extra_forbidden":
            siblings = _siblings(schema, values, path[:-1])
            prefix = place.removesuffix(path[-1])
            hint = "" if siblings is None else nearest(path[-1], siblings, prefix=prefix)
            reasons[f"{place} is not a key{hint}"] = []
        else:
            line = f"{place} = {_shown(value)}: " if path else f"{place}: "
            # pydantic's subject (Input, String, List, …) is the value that the line begins with
            reason = re.sub(r"^\w+ should ", "must ", item["msg"]).removeprefix("Value error, ")
            reason = reason.replace("a valid array", "a list in brackets, such as [1,2]")
            reasons.setdefault(line, []).append(reason)
    return [line + _either(why) for line, why in reasons.items()]


def _either(reasons: Iterable[str]) -> str:
    """Return the reasons of the branches of a union as one sentence."""
    first, *others = dict.fromkeys(reasons) or [""]
    return " or ".join([first, *(other.removeprefix("must be ") for other in others)])


def _descend(values: Any, location: Iterable[int | str]) -> tuple[list[str], Any]:
    """Return the part of an error's location that is a place in `values`, and what stands there."""
    path: list[str] = []
    for step in location:
        try:
            values = values[step]
        except (LookupError, TypeError):
            continue
        path.append(str(step))
    return path, values


def _siblings(schema: type[BaseModel], values: Any, path: Iterable[str]) -> list[str] | None:
    """Return the keys that may stand at a place; None where its type does not tell."""
    holder: Any = schema
    for step in path:
        if typing.get_origin(holder) is dict:
            inner = typing.get_args(holder)[1]
        else:
            field = holder.model_fields.get(step)
            inner = field.annotation if field else None
        values = values[int(step) if isinstance(values, list | tuple) else step]
        holder = _holder(inner, values)
        if holder is None:
            return None
    return None if typing.get_origin(holder) is dict else list(holder.model_fields)


def _holder(annotation: Any, value: Any) -> Any:
    """Return the one of the types of a value (`Node | None`, `dict[str, Node]`) that has keys."""
    is_class = isinstance(annotation, type) and not typing.get_origin(annotation)
    is_model = is_class and issubclass(annotation, BaseModel) and _may_be(annotation, value)
    if is_model or typing.get_origin(annotation) is dict:
        return annotation
    inner = (_holder(each, value) for each in typing.get_args(annotation))
    return next(filter(None, inner), None)


def _may_be(model: type[BaseModel], value: Any) -> bool:
    """Tell whether a value has the names of a model (`kind: Literal["beam"]`) in a tagged union."""
    names = {
        key: typing.get_args(field.annotation)
        for key, field in model.model_fields.items()
        if typing.get_origin(field.annotation) is Literal
    }
    return all(len(allowed) > 1 or value.get(key) in allowed for key, allowed in names.items())


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else repr(value)
