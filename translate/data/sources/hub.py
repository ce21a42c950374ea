"""Any data set of the Hugging Face hub, or a local folder that holds the same text."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PositiveInt

from translate.data.pair import Pair
from translate.data.sources.base import (
    NonEmpty,
    Splits,
    Table,
    or_held_out,
    parallel,
)
from translate.data.sources.files import find_files
from translate.data.sources.tables import pair_at
from translate.data.text import text_hash
from translate.errors import UserError, first_line
from translate.files import file_hash


class Hub(Table):
    """A data set of the hub, or its text in local files (data=hub, data=multi30k_…)."""

    kind: Literal["hub"]
    id: NonEmpty | None = Field(description="the data set: owner/name")
    config: NonEmpty | None = Field(description="its configuration, such as de-en")
    revision: NonEmpty | None = Field(
        description="commit or tag: name one, and runs can be repeated"
    )
    splits: Splits = Field(
        description="the data set's names of the splits; null for one that it lacks, which is then "
        "held out of train"
    )
    streaming: bool = Field(
        description="read without storing the whole data set; sensible with a limit"
    )
    limit: PositiveInt | None = Field(
        description="how many training pairs to take, the first ones; null: all"
    )
    dir: NonEmpty | None = Field(
        description="a local folder to read instead: files named PREFIX.LANGUAGE, .gz too"
    )
    files: Splits = Field(
        description="with dir, the prefixes of its files: train for train.en and train.de; null "
        "where there are none, which are then held out of train"
    )

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if self.dir is not None and self.domain is not None:
            yield (
                f"data.domain = {self.domain!r} names a column, but the files of data.dir = "
                f"{self.dir} have no columns: set data.domain to null (translate evaluate takes "
                "domains=FILE)"
            )

    def fingerprint(self, cache: Path) -> str:
        if self.dir is not None:
            return " ".join(
                f"{split} {text_hash(a)} {text_hash(b)}" for split, (a, b) in self._paths().items()
            )
        wanted = self.model_dump(include={"id", "config", "revision", "splits", "columns", "limit"})
        told = self._local()
        return json.dumps(wanted | ({"files": told} if told else {}), sort_keys=True)

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        if self.dir is not None:
            return {
                split: _first(parallel(*paths), self._most(split))
                for split, paths in self._paths().items()
            }
        if self.id is None:
            raise UserError(
                "data.id and data.dir are both missing: give data.id=OWNER/NAME, a data set on "
                "the hub, or data.dir=FOLDER, a local folder with "
                f"{self.files.train}.{self.source}, {self.files.train}.{self.target}, … (.gz too)"
            )
        downloads = cache / "hub"
        if told := self._local():  # `datasets` takes a file of the same time for the same
            digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
            downloads /= digest[:20]
        return {
            split: self._load(split, name, downloads) for split, name in self.splits.given().items()
        }

    def _local(self) -> dict[str, str]:
        """The files, and their hashes, of a folder of that name, which goes before the hub."""
        here = Path(self.id or "")
        files = sorted(path for path in here.rglob("*") if path.is_file()) if self.id else []
        return {str(path.relative_to(here)): file_hash(path) for path in files}

    def _most(self, split: str) -> int | None:
        return self.limit if split == "train" else None

    def _paths(self) -> dict[str, tuple[Path, Path]]:
        languages = (self.source, self.target)
        return {
            split: find_files(self.dir, name, languages, f"data.files.{split}")
            for split, name in self.files.given().items()
        }

    def _load(self, split: str, name: str, downloads: Path) -> Iterator[Pair]:
        import datasets

        where = f"data.id = {self.id}, split {name}"
        places = self.places()
        try:
            rows = datasets.load_dataset(
                cast(str, self.id), self.config, split=name, revision=self.revision,
                streaming=self.streaming, cache_dir=str(downloads),
            )  # fmt: skip
            for row in islice(cast(Iterable[dict[str, Any]], rows), self._most(split)):
                yield pair_at(row, places, where)
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            reason = first_line(error)
            raise UserError(
                f"{where} cannot be loaded: {reason}; check the id, data.config and "
                f"data.splits, and the network{or_held_out(f'data.splits.{split}')}"
            ) from None


def _first(pairs: Iterator[Pair], most: int | None) -> Iterator[Pair]:
    """The first pairs; the others are read for what only the end of their files can tell."""
    yield from islice(pairs, most)
    deque(pairs, maxlen=0)
