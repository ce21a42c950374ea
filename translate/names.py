"""Tables of names: what lies in `translate/extras/` is imported when it is asked for."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

on_demand = pkgutil.resolve_name  # imports the object that `module:attribute` names


class OnDemand(Mapping[str, Any]):
    """A table of objects by name, each imported when it is looked up.

    Args:
        names: `module:attribute` of each.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def __getitem__(self, key: str) -> Any:
        return on_demand(self.names[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
