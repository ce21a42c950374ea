"""Columns of a memory-mapped table as Python's values: what is held in memory is what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow


def in_order(table: pyarrow.Table, name: str) -> Iterator[Any]:
    """Every value of a column, read a chunk at a time."""
    for chunk in table.column(name).chunks:
        yield from chunk.to_pylist()


def at(table: pyarrow.Table, name: str, rows: Iterable[int]) -> list[Any]:
    """The values of some rows, a microsecond or two each."""
    column = table.column(name)
    return [column[row].as_py() for row in rows]
