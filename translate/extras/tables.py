"""Sources of pairs in tables: delimited text, JSON lines and Parquet."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from translate.data.pairs import Pair, Unreadable
from translate.data.plain_text import text_hash, without_surrogates
from translate.data.sources import NonEmpty, Source, files_by_split
from translate.errors import UserError
from translate.extras.delimited import (
    BLANK,
    HEAD,
    Columns,
    Header,
    judged,
    not_one,
    numbered,
    pair_of,
    places,
    read_table,
    unless_nearly_all,
)
from translate.files import file_hash

LanguageColumns = dict[str, str | int]
READING = 2  # raise it when the same rows would be read differently


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
    languages = (("data.source", source.source), ("data.target", source.target))
    if columns is None:
        return [(language, key) for key, language in languages]
    for key, language in languages:
        if language not in columns:
            raise UserError(
                f"{key} = {language} is not a language of this corpus; data.columns has "
                f"{', '.join(columns)}"
            )
    return [(columns[language], "data.columns") for _, language in languages]


class TableFiles(Table, ABC):
    """One file a split."""

    train: NonEmpty = Field(description="file, .gz, .xz, .bz2 and .zst too")
    dev: NonEmpty | None = Field(description="file; null takes hold_out.dev sentences out of train")
    test: NonEmpty | None = Field(description="likewise")

    def fingerprint(self, cache: Path) -> str:
        hashes = " ".join(
            f"{split} {text_hash(path)}" for split, path in files_by_split(self).items()
        )
        return f"{hashes} {json.dumps(self.columns)} {READING}"

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        columns = self.columns_read()
        return {
            split: unless_nearly_all(self._pairs(path, columns), path)
            for split, path in files_by_split(self).items()
        }

    @abstractmethod
    def _pairs(self, path: Path, columns: Columns) -> Iterator[Pair]:
        """Yield the pairs of a file, with an `Unreadable` for each row that is none."""


class Delimited(TableFiles, ABC):
    """Text with a separator between the cells of a row."""

    header: Header = Field(
        description="whether the first line names the columns; auto: if it has the names of the "
        "languages, or those in columns"
    )

    def fingerprint(self, cache: Path) -> str:
        return f"{super().fingerprint(cache)} {self.header}"

    def first_line(self) -> int:
        if self.header != "auto":
            return 1 + self.header
        head = list(islice(numbered(files_by_split(self)["train"]), HEAD))
        return 1 + bool(judged(head, self.columns_read(), **self._form).names)

    @property
    @abstractmethod
    def _separator(self) -> str | None:
        """The character between two cells; None: what the first rows have."""

    @property
    def _form(self) -> dict[str, Any]:
        languages = (self.source, self.target)
        return {"header": self.header, "separator": self._separator, "languages": languages}

    def _pairs(self, path: Path, columns: Columns) -> Iterator[Pair]:
        return read_table(path, columns, **self._form)


class Tsv(Delimited):
    """Tab-separated values, one pair a line (data=tsv)."""

    kind: Literal["tsv"]

    @property
    def _separator(self) -> str:
        return "\t"


class Csv(Delimited):
    """Values separated by commas, semicolons, tabs or bars, in quotation marks (data=csv)."""

    kind: Literal["csv"]
    separator: Literal[",", ";", "\t", "|"] | None = Field(
        description="the character between two cells; null: what the first rows have"
    )

    @property
    def _separator(self) -> str | None:
        return self.separator


class Jsonl(TableFiles):
    """One JSON object a line (data=jsonl)."""

    kind: Literal["jsonl"]

    def _pairs(self, path: Path, columns: Columns) -> Iterator[Pair]:
        for _, line in numbered(path):
            if not line.strip():
                yield BLANK
                continue
            try:
                # numbers as they are spelled: 1.50 stays so
                row = json.loads(line, parse_int=str, parse_float=str, parse_constant=_missing)
            except (ValueError, RecursionError):  # also a nest too deep
                row = None
            if isinstance(row, dict):
                yield pair_of_row(row, columns, text=line)
            else:
                yield Unreadable.of(line, "it is not a JSON object: data=jsonl takes one per line")


class Parquet(TableFiles):
    """A file of Parquet, as pandas and the Hugging Face hub store tables (data=parquet)."""

    kind: Literal["parquet"]

    def fingerprint(self, cache: Path) -> str:
        hashes = " ".join(
            f"{split} {file_hash(path)}" for split, path in files_by_split(self).items()
        )
        return f"{hashes} {json.dumps(self.columns)} {READING}"

    def _pairs(self, path: Path, columns: Columns) -> Iterator[Pair]:
        import pyarrow
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    for row in batch.to_pylist():
                        yield pair_of_row(row, columns)
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(
                f"{path} cannot be read as Parquet ({error}); fetch or write it again, or see "
                "whether it is another kind of table (data=csv, data=tsv, data=jsonl)"
            ) from None


def pair_of_row(row: Mapping[str, Any], columns: Columns, *, text: str | None = None) -> Pair:
    """Return the pair of a row, which may be nested: a path such as `translation.de` leads there.

    It is `Unreadable`, with this `text`, where a column is not there or holds no text.
    """
    try:
        return pair_of(_text_at(row, column, columns) for column in columns)
    except UserError as error:
        return Unreadable.of(repr(row) if text is None else text, str(error))


def _text_at(row: Mapping[str, Any], column: tuple[str | int, str], columns: Columns) -> str:
    value = _value_at(row, column, columns)
    if value is None or value != value:  # NULL of SQL, or NaN, which pandas writes for it
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"its column {column[0]} ({column[1]}) holds {value!r}, which is not text")
    return without_surrogates(value)  # JSON can spell them, UTF-8 cannot


def _value_at(row: Mapping[str, Any], column: tuple[str | int, str], columns: Columns) -> Any:
    """Return the value of a column: of this name, at this path, or the only one named so within."""
    path = str(column[0])
    value: Any = row
    for step in [path] if path in row else path.split("."):  # a name may have a dot itself
        if not isinstance(value, Mapping) or step not in value:
            break
        value = value[step]
    else:
        return value
    inner = dict(_leaves(row))
    names = list(inner)
    hits = places(path, names) or places(path, [name.rpartition(".")[2] for name in names])
    if len(hits) != 1:
        raise UserError(f"it has {not_one(column, columns, names, hits)}")
    return inner[names[hits[0]]]


def _leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each column, of nested ones too."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _missing(constant: str) -> None:
    """NaN or Infinity of JSON, which is no text."""
