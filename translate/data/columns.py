"""Columns of a memory-mapped table as Python's values: what is held in memory is what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow


def mapped(path: Path) -> pyarrow.Table:
    """A stream file of Arrow, of which nothing is read yet but its outline."""
    return pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()


def in_order(table: pyarrow.Table, name: str) -> Iterator[Any]:
    """Every value of a column, read a chunk at a time."""
    for chunk in table.column(name).chunks:
        yield from chunk.to_pylist()


def at(table: pyarrow.Table, name: str, rows: Iterable[int]) -> list[Any]:
    """The values of some rows, a microsecond or two each."""
    column = table.column(name)
    return [column[row].as_py() for row in rows]
