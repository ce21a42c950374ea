"""Tables on disk: tab-separated values, one JSON object a line, and SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from translate.data.pair import Pair
from translate.data.sources.base import SPLITS, Columns, Source, Text, column_of, file_hash
from translate.data.text import read_lines, without_surrogates
from translate.errors import UserError


class _Table(Source):
    """One file a split."""

    train: Text
    dev: Text | None
    test: Text | None
    columns: Columns | None

    def fingerprint(self, cache: Path, seed: int) -> str:
        hashes = " ".join(f"{split} {file_hash(path)}" for split, path in self._paths().items())
        return f"{hashes} {json.dumps(self.columns)}"

    def _paths(self) -> dict[str, Path]:
        names = {split: getattr(self, split) for split in SPLITS}
        return {split: Path(name).expanduser() for split, name in names.items() if name is not None}

    def _columns(self) -> tuple[str | int, str | int]:
        return (
            column_of(self.source, "source", self.columns),
            column_of(self.target, "target", self.columns),
        )


class Tsv(_Table):
    """conf/data/tsv.yaml."""

    kind: Literal["tsv"]
    header: bool

    def fingerprint(self, cache: Path, seed: int) -> str:
        return f"{super().fingerprint(cache, seed)} {self.header}"

    def open(self, cache: Path, seed: int) -> Mapping[str, Iterable[Pair]]:
        columns = self._columns()
        return {
            split: read_tsv(path, columns, header=self.header)
            for split, path in self._paths().items()
        }


class Jsonl(_Table):
    """conf/data/jsonl.yaml."""

    kind: Literal["jsonl"]

    def open(self, cache: Path, seed: int) -> Mapping[str, Iterable[Pair]]:
        columns = self._columns()
        return {split: _read_jsonl(path, columns) for split, path in self._paths().items()}


def read_tsv(path: Path, columns: tuple[str | int, str | int], *, header: bool) -> Iterator[Pair]:
    """Pairs from two columns, each a number from 1 or, with a header line, a name."""
    lines = enumerate(read_lines(path), start=1)
    names = next(lines, (0, ""))[1].split("\t") if header else []
    source, target = (_position(column, names, path) for column in columns)
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) <= max(source, target):
            raise UserError(
                f"{path}, line {number} has {len(cells)} tab-separated columns, but column "
                f"{max(source, target) + 1} "
                "is asked for (data.columns)"
            )
        yield Pair(cells[source], cells[target])


def _position(column: str | int, names: list[str], path: Path) -> int:
    if isinstance(column, int) and column >= 1:
        return column - 1
    if column in names:
        return names.index(str(column))
    there = (
        f"its header line has {', '.join(names)}"
        if names
        else "without a header line columns are numbers from 1"
    )
    raise UserError(f"data.columns: {path} has no column {column}; {there}")


def _read_jsonl(path: Path, columns: tuple[str | int, str | int]) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{place} is not JSON ({error.msg}, column {error.colno})") from None
        yield Pair(at_path(row, columns[0], place), at_path(row, columns[1], place))


def at_path(row: Any, path: str | int, place: str) -> str:
    """The text under a column path such as `translation.de` in nested mappings."""
    value = row
    for step in str(path).split("."):
        if not isinstance(value, Mapping) or step not in value:
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else "none"
            raise UserError(f"{place} has no column {path} (data.columns): there are {there}")
        value = value[step]
    if not isinstance(value, str):
        raise UserError(f"{place}: column {path} (data.columns) holds {value!r}, which is not text")
    return without_surrogates(value)  # JSON can spell them, UTF-8 cannot


def read_sqlite(path: Path, query: str, columns: tuple[str | int, str | int]) -> list[Pair]:
    """Pairs from a query for source, target and, at will, group; `columns` are :source, :target."""
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as database:
        try:
            rows = database.execute(
                query, {"source": str(columns[0]), "target": str(columns[1])}
            ).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"data.query fails on {path} ({error})") from None
    if rows and len(rows[0]) not in (2, 3):
        raise UserError(
            f"data.query gives {len(rows[0])} columns; it needs source, target and perhaps group"
        )
    return [Pair(str(source), str(target), str(*group)) for source, target, *group in rows]
