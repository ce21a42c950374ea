"""What every source of sentence pairs is: a node of the configuration that can read itself."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from translate.data.cleaning import Cleaning
from translate.data.pair import Pair
from translate.data.splits import HoldOut
from translate.errors import UserError

SPLITS = ("train", "dev", "test")
Columns = dict[str, str | int]
Text = Annotated[str, Field(min_length=1)]  # a name or a path; an empty one names nothing


class Splits(BaseModel):
    """A name for each split in the source; null where the source has no such split."""

    model_config = ConfigDict(extra="forbid")
    train: Text
    dev: Text | None
    test: Text | None

    def given(self) -> dict[str, str]:
        """The splits that the source has, in the order train, dev, test."""
        return {split: name for split in SPLITS if (name := getattr(self, split)) is not None}


class Source(BaseModel, ABC):
    """The node `data`: what all kinds share; a subclass a kind adds where its text is.

    conf/data/base.yaml says what each key means.
    """

    model_config = ConfigDict(extra="forbid")
    source: Text
    target: Text
    attribution: str | None
    seed: NonNegativeInt
    cleaning: Cleaning
    hold_out: HoldOut
    allow_overlap: bool
    max_length: PositiveInt
    tokens_per_batch: PositiveInt | Literal["auto"]
    pool_batches: PositiveInt
    workers: NonNegativeInt

    @abstractmethod
    def fingerprint(self, cache: Path, seed: int) -> str:
        """Another text whenever `read` would return other pairs; quick, so that a cache can ask."""

    @abstractmethod
    def read(self, cache: Path, seed: int) -> dict[str, list[Pair]]:
        """The pairs of every split that the source itself has, `train` always among them."""


def parallel(sources: Iterable[str], targets: Iterable[str], names: tuple[str, str]) -> list[Pair]:
    """Pair lines with lines; UserError with both counts if they differ (`names` are the files')."""
    left, right = list(sources), list(targets)
    if len(left) != len(right):
        raise UserError(
            f"{names[0]} has {len(left)} lines, but {names[1]} has {len(right)}: parallel files "
            "need one translation "
            "a line; find the missing line before going on"
        )
    return list(map(Pair, left, right))


def column_of(language: str, key: str, columns: Mapping[str, str | int] | None) -> str | int:
    """Where the sentences of a language stand; without `columns`, under its own name."""
    if columns is None:
        return language
    if language not in columns:
        known = ", ".join(columns)
        raise UserError(
            f"data.{key} = {language} is no language of this corpus; data.columns has {known}"
        )
    return columns[language]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path") from None
