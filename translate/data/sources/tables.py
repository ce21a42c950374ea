"""Tables on disk: tab-separated values, one JSON object a line, and SQLite."""

from __future__ import annotations

import json
import reprlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from translate.data.pair import Pair
from translate.data.sources.base import NOT_UTF_8, SPLITS, NonEmpty, PairColumns, Table
from translate.data.text import read_lines, text_hash, without_surrogates
from translate.errors import UserError
from translate.wording import counted

ONE_OBJECT = "data=jsonl takes one object per line"
BLANK = Pair("", "")  # of a blank line between others, so that pair n stays on line n


class _Files(Table):
    """One file a split."""

    train: NonEmpty = Field(description="file, .gz too")
    dev: NonEmpty | None = Field(description="file; null takes hold_out.dev sentences out of train")
    test: NonEmpty | None = Field(description="likewise")

    def fingerprint(self, cache: Path) -> str:
        hashes = " ".join(f"{split} {text_hash(path)}" for split, path in self._paths().items())
        return f"{hashes} {json.dumps(self.columns)}"

    def _paths(self) -> dict[str, Path]:
        names = {split: getattr(self, split) for split in SPLITS}
        return {split: Path(name).expanduser() for split, name in names.items() if name is not None}


class Tsv(_Files):
    """Tab-separated values, one pair a line (data=tsv)."""

    kind: Literal["tsv"]
    header: bool = Field(description="whether the first line names the columns")

    def fingerprint(self, cache: Path) -> str:
        return f"{super().fingerprint(cache)} {self.header}"

    def first_line(self) -> int:
        return 2 if self.header else 1

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        places = self.places()
        return {
            split: read_tsv(path, places, header=self.header)
            for split, path in self._paths().items()
        }


class Jsonl(_Files):
    """One JSON object a line (data=jsonl)."""

    kind: Literal["jsonl"]

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        places = self.places()
        return {split: _read_jsonl(path, places) for split, path in self._paths().items()}


def read_tsv(path: Path, places: PairColumns, *, header: bool) -> Iterator[Pair]:
    """Pairs from columns, each a number from 1 or, with a header line, a name."""
    lines = _numbered(path)
    names = next(lines, (0, ""))[1].split("\t") if header else []
    positions = [_position(column, names, path, key) for column, key in places.given()]
    last, key = max(zip(positions, (key for _, key in places.given()), strict=True))
    for number, line in lines:
        cells = line.split("\t")
        if not line.strip(" "):
            yield BLANK
            continue
        if len(cells) <= last:
            raise UserError(
                f"{path}, line {number} has {counted(len(cells), 'tab-separated column')}, but "
                f"column {last + 1} is asked for ({key}): put tabs between its columns, or remove "
                "the line"
            )
        yield _pair(cells[position] for position in positions)


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers from 1, without blank ones at its end."""
    held = []
    for number, line in enumerate(read_lines(path, tolerated=NOT_UTF_8), start=1):
        held.append((number, line))
        if line.strip(" "):
            yield from held
            held.clear()


def _position(column: str | int, names: list[str], path: Path, key: str) -> int:
    if column in names:
        return names.index(str(column))
    if str(column).isdecimal() and int(column) >= 1:
        return int(column) - 1
    commas = ", no tab: is it comma-separated?" if len(names) == 1 and "," in names[0] else ""
    there = (
        f"its header line has {', '.join(names)}{commas}"
        if names
        else "without a header line, columns are numbered from 1"
    )
    raise UserError(f"{key}: {path} has no column {column}; {there}")


def _read_jsonl(path: Path, places: PairColumns) -> Iterator[Pair]:
    for number, line in _numbered(path):
        if not line.strip():
            yield BLANK
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also of a number too long, a nest too deep
            raise UserError(f"{place} is not JSON ({error}): {ONE_OBJECT}") from None
        if not isinstance(row, dict):
            raise UserError(f"{place} is of type {type(row).__name__}: {ONE_OBJECT}")
        yield pair_at(row, places, place)


def pair_at(row: Any, places: PairColumns, place: str) -> Pair:
    """The pair of a row, which may be nested: a path such as `translation.de` leads there."""
    return _pair(_at_path(row, path, place, key) for path, key in places.given())


def _pair(texts: Iterable[str]) -> Pair:
    """From the texts of `PairColumns.given`, or of a query's row."""
    source, target, *domain = texts
    return Pair(source, target, "".join(domain))


def _at_path(row: Any, path: str | int, place: str, key: str) -> str:
    value = row
    flat = isinstance(row, Mapping) and str(path) in row  # a name may have a dot itself
    for step in [str(path)] if flat else str(path).split("."):
        if not isinstance(value, Mapping) or step not in value:
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else "none"
            raise UserError(f"{place} has no column {path} ({key}): it has {there}")
        value = value[step]
    if value is None:
        return ""  # as NULL is in SQL, and an empty cell of a hub's table
    if isinstance(value, int) and key == "data.domain":
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"{place}: column {path} ({key}) holds {value!r}, which is not text")
    return without_surrogates(value)  # JSON can spell them, UTF-8 cannot


def read_sqlite(path: Path, query: str, places: PairColumns) -> list[Pair]:
    """Pairs from a query for source, target and, at will, group; `places` are :source, :target."""
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as database:
        try:
            rows = database.execute(
                query, {"source": str(places.source), "target": str(places.target)}
            ).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"data.query fails on {path} ({error})") from None
    if rows and len(rows[0]) not in (2, 3):
        raise UserError(
            f"data.query gives {counted(len(rows[0]), 'column')}; it needs source, target and "
            "perhaps group"
        )
    return [_pair(_sql_text(value, query) for value in row) for row in rows]


def _sql_text(value: object, query: str) -> str:
    """NULL is an empty text, a number its digits."""
    match value:
        case None:
            return ""
        case str() | int() | float():
            return str(value)
    raise UserError(
        f"data.query = {query!r} gives {reprlib.repr(value)}, which is not text; CAST it, or "
        "choose another column"
    )
