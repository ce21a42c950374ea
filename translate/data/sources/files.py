"""Two parallel text files a split: line n of one is the translation of line n of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from translate.data.pair import Pair
from translate.data.sources.base import SPLITS, Source, file_hash, parallel
from translate.data.text import read_lines
from translate.errors import UserError

Name = (
    str | tuple[str, str]
)  # a prefix (`train` for train.de and train.en) or both file names, source first


class Files(Source):
    """conf/data/files.yaml."""

    kind: Literal["files"]
    dir: str | None
    train: Name
    dev: Name | None
    test: Name | None

    def fingerprint(self, cache: Path, seed: int) -> str:
        return " ".join(
            f"{split} {file_hash(a)} {file_hash(b)}" for split, (a, b) in self._paths().items()
        )

    def read(self, cache: Path, seed: int) -> dict[str, list[Pair]]:
        return {
            split: parallel(read_lines(a), read_lines(b), (str(a), str(b)))
            for split, (a, b) in self._paths().items()
        }

    def _paths(self) -> dict[str, tuple[Path, Path]]:
        names: dict[str, Name | None] = {split: getattr(self, split) for split in SPLITS}
        return {
            split: find_files(self.dir, name, (self.source, self.target), f"data.{split}")
            for split, name in names.items()
            if name is not None
        }


def find_files(
    folder: str | None, name: Name, languages: tuple[str, str], key: str
) -> tuple[Path, Path]:
    """The two files of a split, source first; UserError that names what was looked for."""
    root = Path(folder or ".").expanduser()
    if not root.is_dir():
        raise UserError(
            f"data.dir = {folder} is not a folder; give the one that holds the text files"
        )
    wanted = (
        [f"{name}.{language}" for language in languages] if isinstance(name, str) else list(name)
    )
    found = [_existing(root / file, key) for file in wanted]
    return found[0], found[1]


def _existing(path: Path, key: str) -> Path:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    raise UserError(
        f"neither {path} nor {path.name}.gz exists; set data.dir (the folder), {key} (the file) "
        "and data.source, "
        "data.target (the endings)"
    )
