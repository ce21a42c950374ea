"""Two parallel text files a split: line n of one is the translation of line n of the other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from translate.data.pair import Pair
from translate.data.pharaoh import read_links
from translate.data.sources.base import SPLITS, NonEmpty, Source, or_held_out, parallel, present
from translate.data.text import text_hash
from translate.errors import UserError
from translate.wording import counted

log = logging.getLogger(__name__)

# a prefix (`train` for train.de and train.en) or both file names, source first
Name = NonEmpty | tuple[NonEmpty, NonEmpty]
OTHER_NAMES = ("valid", "val", "validation", "devel")  # for dev, in the corpora of others
AUTO = "auto"  # in place of a name: the split's own name, where there are such files


class Files(Source):
    """Two text files a split, one sentence a line, `.gz` too (data=files)."""

    kind: Literal["files"]
    dir: NonEmpty | None = Field(description="folder of the files; null: the current one")
    train: Name = Field(
        description="a prefix (train: train.de and train.en), or both names: [german.txt, "
        "english.txt]"
    )
    dev: Name | None = Field(
        description="likewise; auto: dev.* where it is there; null takes hold_out.dev sentences "
        "out of train"
    )
    test: Name | None = Field(description="likewise")
    alignments: NonEmpty | None = Field(
        description="ending of files with one line of links per pair (0-0 1-2: source and target "
        "word, from 0), such as align for train.align, and dev.align, test.align where they exist"
    )

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if self.alignments is not None and self.cleaning.replace:
            yield (
                "data.alignments count the words in the files, but data.cleaning.replace may join "
                "or split words: make the replacements in the files, or set one of the two to null "
                "or []"
            )
        if self.alignments is not None and not isinstance(self.train, str):
            yield (
                f"data.alignments = {self.alignments!r} is a file ending, like those of the "
                "languages: data.train must be a prefix, not two file names"
            )

    def fingerprint(self, cache: Path) -> str:
        texts = [(split, *paths) for split, paths in self._paths().items()]
        links = [(f"{split} links", path) for split, path in self._links().items()]
        return " ".join(
            f"{name} {' '.join(map(text_hash, files))}" for name, *files in texts + links
        )

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        pairs: dict[str, Iterable[Pair]] = {
            split: parallel(*both) for split, both in self._paths().items()
        }
        for split, path in self._links().items():
            pairs[split] = _aligned(pairs[split], path)
        return pairs

    def tell_held_out(self) -> None:
        for split in SPLITS:
            if getattr(self, split) == AUTO and self._name(split) is None:
                self._tell_held_out(split)

    def _tell_held_out(self, split: str) -> None:
        """That a split is taken out of the training text, where its files may have another name."""
        if not isinstance(count := getattr(self.hold_out, split), int) or not count:
            return
        root = Path(self.dir or ".").expanduser()
        names = OTHER_NAMES if split == "dev" else ()
        other = next((name for name in names if present(root / f"{name}.{self.source}")), None)
        log.info(
            "no %s.%s in %s: holding %s out of the training text%s",
            split, self.source, root, counted(count, "sentence"),
            "" if other is None else f" (for {other}.{self.source}, set data.dev={other})",
        )  # fmt: skip

    def _links(self) -> dict[str, Path]:
        """The alignment files: of train, and of dev and test where they exist."""
        if self.alignments is None:
            return {}
        root, found = Path(self.dir or ".").expanduser(), {}
        for split in SPLITS:
            name = self._name(split)
            path = root / f"{name}.{self.alignments}"
            if split == "train" or (isinstance(name, str) and present(path)):
                found[split] = _existing(path, "data.alignments")
        return found

    def _paths(self) -> dict[str, tuple[Path, Path]]:
        names = {split: self._name(split) for split in SPLITS}
        return {
            split: find_files(self.dir, name, (self.source, self.target), f"data.{split}")
            for split, name in names.items()
            if name is not None
        }

    def _name(self, split: str) -> Name | None:
        """The prefix or the files of a split; none where it is to be held out."""
        name: Name | None = getattr(self, split)
        if name != AUTO:
            return name
        if split == "train":  # cannot be held out: that its files are missing is told
            return split
        root = Path(self.dir or ".").expanduser()
        sides = [present(root / f"{split}.{end}") for end in (self.source, self.target)]
        return split if any(sides) else None


def _aligned(pairs: Iterable[Pair], path: Path) -> list[Pair]:
    """The pairs, which are read whole, with their sure links: a corpus keeps no others."""
    pairs = list(pairs)
    links = read_links(path, [pair.source for pair in pairs], [pair.target for pair in pairs])
    if possible := sum(len(gold.possible) for gold in links):
        log.warning(
            "ignoring %s of %s: only sure links are used to train and score; to score with both, "
            "run translate align with input=, reference= and gold=%s",
            counted(possible, "possible link"), path, path,
        )  # fmt: skip
    return [
        pair._replace(alignment=tuple(sorted(gold.sure)))
        for pair, gold in zip(pairs, links, strict=True)
    ]


def _from_here(path: Path) -> str:
    """Where a relative path leads: one in a run's config.yaml may be of another folder."""
    return "" if path.is_absolute() else f" from here ({path.absolute()})"


def find_files(
    folder: str | None, name: Name, languages: tuple[str, str], key: str
) -> tuple[Path, Path]:
    """The two files of a split, source first; UserError that names what was looked for."""
    root = Path(folder or ".").expanduser()
    if not root.is_dir():
        raise UserError(
            f"data.dir = {folder} is not a folder{_from_here(root)}; give the one that holds the "
            "text files"
        )
    wanted = (
        [f"{name}.{language}" for language in languages] if isinstance(name, str) else list(name)
    )
    found = [_existing(root / Path(file).expanduser(), key) for file in wanted]
    return found[0], found[1]


def _existing(path: Path, key: str) -> Path:
    if found := present(path):
        return found
    raise UserError(
        f"neither {path} nor {path.name}.gz exists; set data.dir (the folder), {key} (the file) "
        f"and data.source, data.target (the endings){or_held_out(key)}"
    )
