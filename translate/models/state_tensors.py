"""The tensors in a decoder's state, by name: what a graph of one step reads and hands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

Value = TypeVar("Value")


def tensors_in(value: Any, name: str = "") -> dict[str, Tensor]:
    """Every tensor in a value, named by the way that leads to it: `caches.0.keys`."""
    if isinstance(value, Tensor):
        return {name: value}
    found: dict[str, Tensor] = {}
    for place, part in _parts(value):
        found |= tensors_in(part, f"{name}.{place}".lstrip("."))
    return found


def with_tensors(value: Value, tensors: Mapping[str, Tensor], name: str = "") -> Value:
    """The same value with other tensors, each found in `tensors` by its name."""
    if isinstance(value, Tensor):
        return tensors[name]  # type: ignore[return-value]  # a tensor for a tensor
    parts = {
        place: with_tensors(part, tensors, f"{name}.{place}".lstrip("."))
        for place, part in _parts(value)
    }
    if not parts:
        return value
    if is_dataclass(value):
        return replace(value, **parts)  # type: ignore[type-var]
    return type(value)(parts.values())  # type: ignore[call-arg]  # a list or a tuple


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, list | tuple):
        yield from ((str(place), part) for place, part in enumerate(value))
