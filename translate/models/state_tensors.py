"""The tensors in a decoder's state, by name: what a graph of steps reads and hands on.

A state is made of dataclasses, lists and tuples of tensors and plain values. What graphs ask of it
is done here, so that a family need not know of them. A field `length` counts the tokens that were
read; a part that grows with them keeps its shape in its own way (`Growing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from translate.attention.cache import number_on

PLAIN = (Tensor, int, float, str, type(None))


@runtime_checkable
class Growing(Protocol):
    """A part of a state that each token makes larger."""

    def reserved(self, columns: int, device: torch.device) -> Self:
        """Make the part with room for so many more columns: steps keep its shapes."""

    def released(self, before: Self, *, tokens: int, columns: int) -> Self:
        """Make the part as if it had grown from `before`, by so many tokens and columns."""

    def without_room(self) -> Self:
        """Make the part whose tensors are as long as what is written in them."""


def tensors_in(value: Any, name: str = "") -> dict[str, Tensor]:
    """Return every tensor in a value, named by the way that leads to it: `caches.0.keys`."""
    if isinstance(value, Tensor):
        return {name: value}
    tensors: dict[str, Tensor] = {}
    for place, part in _parts(value):
        tensors |= tensors_in(part, f"{name}.{place}".lstrip("."))
    return tensors


def with_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Make the same value with other tensors, each found in `tensors` by its name."""
    return _changed(value, lambda name, part: tensors[name] if isinstance(part, Tensor) else part)


def why_no_graph(value: Any) -> str | None:
    """Return the reason why one program cannot serve every step; None: it can.

    Such a part has a reason of its own, `no_graph`, or is of a type that nothing is known of.
    """
    if (reason := getattr(value, "no_graph", None)) is not None:
        return str(reason)
    if not (isinstance(value, (*PLAIN, list, tuple)) or is_dataclass(value)):
        return f"a {type(value).__name__} in its state is no tensor, dataclass, list or tuple"
    return next(filter(None, (why_no_graph(part) for _, part in _parts(value))), None)


def reserved(state: Any, *, tokens: int, beam: int) -> Any:
    """Make the state with room for so many more tokens of each hypothesis; None: it cannot be.

    Steps and `select` keep the shapes of its tensors from the first step on, and lengths are
    tensors too: each step is the same program, which a GPU repeats by itself
    (search/cuda_graph.py).
    """
    if why_no_graph(state) is not None:
        return None
    device = next(iter(tensors_in(state).values())).device

    def change(name: str, part: Any) -> Any:
        if isinstance(part, Growing):
            return part.reserved(tokens * beam, device)
        return number_on(device, part) if _is_length(name) else part

    return _changed(state, change)


def released(state: Any, before: Any, *, tokens: int, beam: int) -> Any:
    """Make of a `reserved` state, so many tokens after `before`, what it would be without room."""
    if isinstance(state, Growing):
        return state.released(before, tokens=tokens, columns=tokens * beam)
    parts = {}
    for (place, part), (_, earlier) in zip(_parts(state), _parts(before), strict=True):
        parts[place] = released(part, earlier, tokens=tokens, beam=beam)
        if _is_length(place):
            parts[place] = earlier + tokens
    return _rebuilt(state, parts)


def without_room(state: Any, length: int) -> Any:
    """Make the state after `length` tokens of one hypothesis a sentence, for a graph to hand on.

    The shapes of its tensors depend on `length` alone, which may be a symbol.
    """

    def change(name: str, part: Any) -> Any:
        if isinstance(part, Growing):
            part = part.without_room()
        return part if not _is_length(name) else length

    return _changed(state, change)


def _is_length(name: str) -> bool:
    return name.rpartition(".")[2] == "length"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, list | tuple):
        yield from ((str(place), part) for place, part in enumerate(value))


def _changed(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """Make the same value, of which `change` has made other parts; these are not looked into."""
    changed = change(name, value)
    if changed is not value:
        return changed
    parts = {
        place: _changed(part, change, f"{name}.{place}".lstrip("."))
        for place, part in _parts(value)
    }
    return _rebuilt(value, parts)


def _rebuilt(value: Any, parts: Mapping[str, Any]) -> Any:
    if not parts:
        return value
    if isinstance(value, list | tuple):
        return type(value)(parts.values())
    return replace(value, **parts)
