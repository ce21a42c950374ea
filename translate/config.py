"""What a node of the configuration may hold, read from the signature that will receive it.

Every node of `conf/` is the keyword arguments of one callable, so its signature is its schema: the
names are the valid keys, the annotations their types and ranges. Annotate with pydantic's
vocabulary::

    class Transformer(Seq2Seq):
        def __init__(self, *, d_model: PositiveInt, dropout: Annotated[float, Field(ge=0, lt=1)],
                     norm: Literal["pre", "post"]) -> None: ...

    problems(Transformer, {"d_model": 0, "nrom": "pre", "dropout": 0.1}, "model")
    # ["model.d_model = 0: must be greater than 0",
    #  "model.nrom is not a key; did you mean model.norm?",
    #  "model.norm is missing"]

A parameter without a default must stand in the YAML, which is where defaults belong.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NotRequired, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from translate.errors import UserError
from translate.wording import listing, nearest

Schema = Callable[..., Any] | type[BaseModel]


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
    schema: Schema,
    values: Mapping[str, Any],
    where: str,
    *,
    supplied: Collection[str] = (),
    combined: bool = True,
) -> list[str]:
    """Every problem of one configuration node, one line each; an empty list when there is none.

    Args:
        schema: a function, a class (its constructor counts) or a pydantic model. Of a signature
            only the keyword-only parameters are configuration.
        values: the node, as plain containers.
        where: the node's place in the configuration (`model`), written before every key.
        supplied: parameters that the program itself supplies (a vocabulary size): not keys of the
            node.
        combined: whether contradictions between keys of valid values count.

    Types are strict: `"8"` and `8.5` are no integers, `true` is no number; an integer will do as a
    float.
    """
    found = [
        f"{place} = {_shown(text)}: must be UTF-8: rename the file or folder, or write the value so"
        for place, text in _undecoded(values, where)
    ]
    found += [
        f"{place}: {key!r} is a number or the like, not a name: write it in quotes"
        for place, key in _unnamed(values, where)
    ]
    content = json.dumps(dict(values), default=_plain, ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    try:
        # as JSON: strict there still takes a list for a tuple and text for a path, YAML's only ways
        node = _adapter(schema, frozenset(supplied)).validate_json(content, strict=True)
    except ValidationError as error:
        return found + _lines(error, schema, values, where, supplied)
    return found or list(_contradictions(node, where) if combined else ())


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
    receivers: Mapping[str, Schema],
    *,
    key: str = "kind",
    supplied: Collection[str] = (),
) -> list[str]:
    """Every problem of a node whose `key` names the receiver of the others."""
    if found := misnamed(where, node, receivers, key=key):
        return found
    receiver = receivers[node[key]]
    if not (_is_model(receiver) and key in receiver.model_fields):  # which has a field for its name
        node = {option: value for option, value in node.items() if option != key}
    return problems(receiver, node, where, supplied=supplied)


def misnamed(
    where: str, node: Mapping[str, Any], receivers: Collection[str], *, key: str = "kind"
) -> list[str]:
    """The problem of a node whose `key` names none of its receivers, if it is one."""
    name = node.get(key)
    if isinstance(name, str) and name in receivers:
        return []
    return [f"{where}.{key} = {name!r}: no such {key}{nearest(str(name), receivers)}"]


def check(found: Iterable[str]) -> None:
    """Raise one UserError that lists all problems found, if any."""
    if lines := list(found):
        raise UserError(listing(lines))


def keys(schema: Schema, *, supplied: Collection[str] = ()) -> list[str]:
    """The keys a node for `config` may have, in the order of the signature."""
    if _is_model(schema):
        return list(schema.model_fields)
    return [name for name in _parameters(schema) if name not in supplied]


def _is_model(schema: Any) -> typing.TypeGuard[type[BaseModel]]:
    return inspect.isclass(schema) and issubclass(schema, BaseModel)


def _parameters(schema: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(schema).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _hints(schema: Callable[..., Any]) -> dict[str, Any]:
    """The types of keyword-only parameters; other types may exist for type checkers alone."""
    function = inspect.unwrap(schema.__init__ if inspect.isclass(schema) else schema)
    names = _parameters(schema)
    wanted = {name: hint for name, hint in function.__annotations__.items() if name in names}
    return typing.get_type_hints(
        SimpleNamespace(__annotations__=wanted), function.__globals__, include_extras=True
    )


@lru_cache  # to build one takes ten times as long as to use it
def _adapter(schema: Schema, supplied: frozenset[str]) -> TypeAdapter[Any]:
    if _is_model(schema):
        return TypeAdapter(schema)
    hints = _hints(schema)
    fields = {
        name: hints.get(name, Any) if p.default is p.empty else NotRequired[hints.get(name, Any)]
        for name, p in _parameters(schema).items()
        if name not in supplied
    }
    # a TypedDict rather than a model: a key may be called anything, `copy` or `model_size` too
    node = TypedDict("node", fields)  # type: ignore[misc]  # fields are known at run time only
    node.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
        extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False
    )
    return TypeAdapter(node)


def _undecoded(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Texts of bytes that are not UTF-8 (surrogates, in Python): no file of a run can hold them."""
    if isinstance(value, str | PurePath) and re.search("[\ud800-\udfff]", str(value)):
        yield place.encode("utf-8", "backslashreplace").decode(), str(value)
    inner = value.items() if isinstance(value, Mapping) else ()
    for key, each in enumerate(value) if isinstance(value, list | tuple) else inner:
        below = ".".join(filter(None, [place, str(key)]))
        yield from _undecoded(key, below)
        yield from _undecoded(each, below)


def _unnamed(value: Any, place: str) -> Iterator[tuple[str, object]]:
    """Keys that are no text: as JSON, which is looked at below, they would be."""
    if not isinstance(value, Mapping):
        return
    for key, each in value.items():
        if not isinstance(key, str):
            yield place, key
        yield from _unnamed(each, f"{place}.{key}")


def _lines(
    error: ValidationError,
    schema: Schema,
    values: Mapping[str, Any],
    where: str,
    supplied: Collection[str],
) -> list[str]:
    """pydantic's errors as lines; those of one value (one a branch of a union) share a line."""
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
            siblings = _siblings(schema, values, path[:-1], supplied)
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
    """What the branches of a union say one by one, as a sentence."""
    first, *others = dict.fromkeys(reasons) or [""]
    return " or ".join([first, *(other.removeprefix("must be ") for other in others)])


def _descend(values: Any, location: Iterable[int | str]) -> tuple[list[str], Any]:
    """The part of an error's location that is a place in `values`; the rest names branches."""
    path: list[str] = []
    for step in location:
        try:
            values = values[step]
        except (LookupError, TypeError):
            continue
        path.append(str(step))
    return path, values


def _siblings(
    schema: Schema, values: Any, path: Iterable[str], supplied: Collection[str]
) -> list[str] | None:
    """The keys that may stand at a place; None where its type does not tell."""
    holder: Any = schema
    for step in path:
        if typing.get_origin(holder) is dict:
            inner = typing.get_args(holder)[1]
        else:
            field = holder.model_fields.get(step) if _is_model(holder) else None
            inner = field.annotation if field else _hints(holder).get(step)
        values = values[int(step) if isinstance(values, list | tuple) else step]
        holder = _holder(inner, values)
        if holder is None:
            return None
    return None if typing.get_origin(holder) is dict else keys(holder, supplied=supplied)


def _holder(annotation: Any, value: Any) -> Any:
    """Of the types of a value (`Model | None`, `dict[str, Model]`) the one that has its keys."""
    is_model = _is_model(annotation) and _may_be(annotation, value)
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
    return all(len(own) > 1 or value.get(key) in own for key, own in names.items())


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else repr(value)
