"""Sources of pairs in tables: tab-separated values and JSON lines."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from translate.data.pairs import Pair
from translate.data.plain_text import read_lines, text_hash, without_surrogates
from translate.data.sources import NOT_UTF_8, SPLITS, NonEmpty, Source
from translate.errors import UserError
from translate.wording import counted

LanguageColumns = dict[str, str | int]
# of source, target and perhaps domain: the name, path or number from 1, and the key that has it
Columns = Sequence[tuple[str | int, str]]
BLANK = Pair("", "")  # of a blank line between others, so that pair n stays on line n


class Table(Source, ABC):
    """A source with columns, one of which may name the domain of each pair: its group."""

    columns: LanguageColumns | None = Field(
        description="{language: column} by name, by path such as translation.de, or in a tsv by "
        "number from 1; null: columns named as the languages"
    )
    domain: NonEmpty | PositiveInt | None = Field(
        description="a column with the domain of each pair: translate evaluate scores each apart, "
        "and hold_out takes a list of them; of equal sources the first pair's counts"
    )

    def columns_read(self) -> Columns:
        """Return the columns to read."""
        both = language_columns(self, self.columns)
        return both if self.domain is None else [*both, (self.domain, "data.domain")]


def language_columns(source: Source, columns: LanguageColumns | None) -> Columns:
    """Return the columns of source and target: those named as the languages, or of `columns`."""
    languages = (source.source, source.target)
    if columns is None:
        return [(language, "data.columns") for language in languages]
    for key, language in zip(("source", "target"), languages, strict=True):
        if language not in columns:
            raise UserError(
                f"data.{key} = {language} is not a language of this corpus; data.columns has "
                f"{', '.join(columns)}"
            )
    return [(columns[language], "data.columns") for language in languages]


class TableFiles(Table, ABC):
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


class Tsv(TableFiles):
    """Tab-separated values, one pair a line (data=tsv)."""

    kind: Literal["tsv"]
    header: bool = Field(description="whether the first line names the columns")

    def fingerprint(self, cache: Path) -> str:
        return f"{super().fingerprint(cache)} {self.header}"

    def first_line(self) -> int:
        return 2 if self.header else 1

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        columns = self.columns_read()
        return {
            split: read_tsv(path, columns, header=self.header)
            for split, path in self._paths().items()
        }


class Jsonl(TableFiles):
    """One JSON object a line (data=jsonl)."""

    kind: Literal["jsonl"]

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        columns = self.columns_read()
        return {split: _read_jsonl(path, columns) for split, path in self._paths().items()}


def read_tsv(path: Path, columns: Columns, *, header: bool) -> Iterator[Pair]:
    """Yield pairs from columns, each a number from 1 or, with a header line, a name."""
    lines = _numbered(path)
    names = next(lines, (0, ""))[1].split("\t") if header else []
    positions = [_position(column, names, f"{key}: {path}") for column, key in columns]
    last, key = max(zip(positions, (key for _, key in columns), strict=True))
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
        yield pair_of(cells[position] for position in positions)


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1, without blank ones at its end."""
    held = []
    for number, line in enumerate(read_lines(path, tolerated=NOT_UTF_8), start=1):
        held.append((number, line))
        if line.strip(" "):
            yield from held
            held.clear()


def _position(column: str | int, names: Sequence[str], place: str) -> int:
    if column in names:
        return names.index(str(column))
    if str(column).isdecimal() and int(column) >= 1:
        return int(column) - 1
    there = f"its header line has {', '.join(names)}"
    raise UserError(
        f"{place} has no column {column}; "
        f"{there if names else 'without a header line, columns are numbered from 1'}"
    )


def _read_jsonl(path: Path, columns: Columns) -> Iterator[Pair]:
    for number, line in _numbered(path):
        if not line.strip():
            yield BLANK
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # also of a number too long, a nest too deep
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{place} is not a JSON object: data=jsonl takes one per line")
        yield pair_of_row(row, columns, place)


def pair_of_row(row: Mapping[str, Any], columns: Columns, place: str) -> Pair:
    """Return the pair of a row, which may be nested: a path such as `translation.de` leads there.

    `place` is where the row stands.
    """
    return pair_of(_text_at(row, str(path), place, key) for path, key in columns)


def pair_of(texts: Iterable[str]) -> Pair:
    """Return a pair of the texts of a row: source, target and perhaps domain."""
    source, target, *domain = texts
    return Pair(source, target, "".join(domain))


def _text_at(row: Mapping[str, Any], path: str, place: str, key: str) -> str:
    value: Any = row
    for step in [path] if path in row else path.split("."):  # a name may have a dot itself
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
