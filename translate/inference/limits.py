"""What no bundle may ask for, and so no training either: sizes that only a stranger would give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_SEARCHED = 4096  # pieces or hypotheses
BOUNDED = ("beam_size", "n_best", "groups", "max_length_ratio", "max_length_offset")


def search_excesses(search: Mapping[str, Any], where: str) -> list[str]:
    """What would take all memory, or a day, to search; the keys are valid otherwise."""
    return _excesses(search, dict.fromkeys(BOUNDED, MOST_SEARCHED), where)


def _excesses(values: Mapping[str, Any], limits: Mapping[str, int], where: str) -> list[str]:
    return [
        f"{where}.{name} = {values[name]}: must be at most {limit}"
        for name, limit in limits.items()
        if name in values and values[name] > limit
    ]
