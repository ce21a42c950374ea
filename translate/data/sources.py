"""Sources of sentence pairs: the node of each kind reads the text that it names."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from translate.config import Node
from translate.data.cleaning import Cleaning
from translate.data.pairs import Lines, Pair
from translate.data.plain_text import PACKED, has_text, read_lines, read_links, text_hash
from translate.data.tokenizer import Tag
from translate.errors import UserError
from translate.wording import counted

SPLITS = ("train", "dev", "test")
NonEmpty = Annotated[str, Field(min_length=1)]  # a name or a path: empty, it names nothing
NOT_UTF_8 = 0.01  # of the lines of a text: more are no slips
Groups = list[str | int]  # names of books or domains
MAIN = "main"  # the corpus of `data` itself, beside those of `data.extra`
# a prefix (`train` for train.de and train.en) or both file names, source first
Name = NonEmpty | tuple[NonEmpty, NonEmpty]
AUTO = "auto"  # in place of a name: the split's own name, where there are such files
log = logging.getLogger(__name__)


Share = Annotated[float, Field(ge=0, le=1)]


class HoldOut(Node):
    """The node `data.hold_out`: splits to take out of the training text where there are no files.

    At least half of the pairs must remain for training.
    """

    dev: PositiveInt | Groups | Literal["auto"] = Field(
        description="a number of source sentences, each with all its translations, no sentence of "
        "which stays in training on either side; or a list of groups (books), taken whole: dev "
        "and test may then share sentences; auto: 1,000, but of a small text a fortieth"
    )
    test: NonNegativeInt | Groups | Literal["auto"] = Field(
        description="likewise; 0 for no test split"
    )

    def contradictions(self) -> Iterator[str]:
        if isinstance(self.dev, list) and isinstance(self.test, list):
            for group in sorted(set(map(str, self.dev)) & set(map(str, self.test))):
                yield (
                    f"data.hold_out: dev and test both name the group {group}: give it to only one"
                )


class Modifiers(Node):
    """The node `data.modifiers`: the share of the training pairs that each modifier changes."""

    upper: Share = Field(description="share of pairs in CAPITALS, on both sides")
    title: Share = Field(description="share of pairs With Capitals Like A Title")
    lower: Share = Field(
        description="share of pairs whose source is in lower case; the target stays"
    )
    unpunctuated: Share = Field(
        description="share of pairs without the mark at their end, on both sides"
    )
    doubled: Share = Field(
        description="share of pairs that end in another mark, such as !! or ..., on both sides"
    )
    typos: Share = Field(
        description="share of pairs with one or two slips of the keyboard in the source",
    )
    merged: Share = Field(
        description="share of pairs that are followed by one or two others on the line"
    )
    signs: Share = Field(
        description="share of pairs with a sign of any script or an emoji, in the same place on "
        "both sides: what the vocabulary spells in bytes is learned to be copied",
    )
    names: Share = Field(
        description="share of pairs in which a name that both sides have is replaced by a word "
        "that is new, also of other scripts",
    )

    def contradictions(self) -> Iterator[str]:
        shares = [getattr(self, name) for name in type(self).model_fields]
        if sum(shares) > 1:
            yield (
                f"data.modifiers: the shares add up to {sum(shares):g}, but a pair is changed by "
                "one modifier at most: lower them to 1 together"
            )


# runs that were begun without this key change no pair
UNCHANGED = Modifiers.model_validate(dict.fromkeys(Modifiers.model_fields, 0.0))


class Short(Node):
    """The node `data.short`: how often short sentences are seen, of which a corpus has few.

    What people type first (Hello. Thanks.) stands in a corpus once or twice.
    """

    pieces: NonNegativeInt = Field(description="the most pieces of a source that is short")
    weight: float = Field(
        ge=1, le=100, description="how many times as often as others a short one occurs in an epoch"
    )


NONE_SHORT = Short(pieces=0, weight=1.0)


class Extra(Node):
    """An entry of the node `data.extra`: two files, line n of one the translation of the other's.

    The keys have their defaults here: conf/ cannot know the names of the entries.
    """

    source: NonEmpty = Field(description="file of the source sentences")
    target: NonEmpty = Field(description="file of their translations, line by line")
    weight: Annotated[float, Field(ge=1e-4, le=1e4)] | None = Field(
        default=None,
        description="how often each of its pairs occurs in an epoch; null: by data.temperature",
    )
    tag: Tag | None = Field(
        default=None, description="a piece before every source, such as bt for <bt>"
    )

    def fingerprint(self) -> tuple[str, str, str | None]:
        """All that shapes what is prepared of it."""
        source, target = self._paths()
        return text_hash(source), text_hash(target), self.tag

    def open(self) -> Iterator[Pair]:
        """The pairs, read as they are asked for."""
        return parallel(*self._paths())

    def _paths(self) -> tuple[Path, Path]:
        source, target = (Path(name).expanduser() for name in (self.source, self.target))
        return present(source) or source, present(target) or target


class Source(Node, ABC):
    """The node `data`: what all kinds share; the subclass of a kind adds where its text is."""

    source: NonEmpty = Field(
        description="language to translate from, as the corpus names it (a column, the ending of "
        "a file)"
    )
    target: NonEmpty = Field(
        description="language to translate into; exchange the two to turn the direction"
    )
    attribution: str | None = Field(
        description="whose text it is and under which licence: shown in the report and the model "
        "card"
    )
    seed: NonNegativeInt = Field(
        description="of what is held out, drawn and sampled here; the training has its own, so "
        "that runs with other seeds compare"
    )
    cleaning: Cleaning = Field(
        description="rules for the training text alone: every drop is counted in the report, and "
        "translate prepare dropped=FILE lists them"
    )
    hold_out: HoldOut = Field(
        description="splits to take out of the training text where the corpus has none; at least "
        "half of the pairs must remain for training"
    )
    allow_overlap: bool = Field(
        description="keep training pairs (of extra too) that have a source or target sentence of "
        "dev or test; false: drop them"
    )
    tag: Tag | None = Field(
        description="a piece before every source, such as the language to translate into: fr is "
        "<fr>"
    )
    extra: dict[str, Extra] | None = Field(
        description="further training text, such as back-translations or other languages, by "
        "name, with the times that a pair occurs in an epoch (weight) and a tag: "
        "{back: {source: mono.de, target: mono.en, weight: 0.5, tag: bt}}"
    )
    temperature: float = Field(
        ge=1,
        description="corpora without a weight are mixed by (their share of pairs)^(1/temperature): "
        "1 is every pair once per epoch, 5 is usual for several languages, more draws all corpora "
        "alike; for the batches alone: the vocabulary is learned from every pair once",
    )
    short: Short = Field(
        default=NONE_SHORT,
        description="short sentences may be seen more often than others",
    )
    modifiers: Modifiers = Field(
        default=UNCHANGED,
        description="training pairs changed as people's text differs: translate prepare "
        "show=modifiers prints examples",
    )
    max_length: PositiveInt = Field(
        description="pieces; longer training pairs are left out of the batches; dev pairs count "
        "for dev/loss up to 1,024, or up to this if it is more"
    )
    tokens_per_batch: PositiveInt | Literal["auto"] = Field(
        description="padded tokens of one side of a batch; auto: what the GPU has memory for (a "
        "CPU: 4,096), found when a run begins and kept with it"
    )
    pool_batches: PositiveInt = Field(
        description="batches' worth of pairs that are sorted by length together; more: less "
        "padding, less chance"
    )
    workers: NonNegativeInt | None = Field(
        description="processes that make batches; null: one where it pays (a GPU to feed, or text "
        "to cut anew by tokenizer.sampling or to align for guided alignment), else none"
    )

    def contradictions(self) -> Iterator[str]:
        weights = [extra.weight for extra in (self.extra or {}).values()]
        if self.temperature != 1 and None not in weights:
            yield (
                f"data.temperature = {self.temperature:g} mixes corpora without a weight, but "
                "data.extra has none: add one, or set it to 1"
            )

    @field_validator("target")
    @classmethod
    def _is_another_language(cls, target: str, info: ValidationInfo) -> str:
        if target == info.data.get("source"):
            raise ValueError("must be another language than data.source")
        return target

    @field_validator("extra")
    @classmethod
    def _has_names(cls, extra: dict[str, Extra] | None) -> dict[str, Extra] | None:
        for name in extra or {}:
            # keys of a stored configuration never begin with _, nor are they `defaults`: both are
            # orders to Hydra
            if name in (MAIN, "defaults") or not re.fullmatch(r"[^\W_][\w-]*", name):
                raise ValueError(
                    f"{name!r} cannot name a corpus: use letters, digits, - and _, without a "
                    f"leading _, and neither {MAIN} (the corpus of dev and test) nor defaults"
                )
        return extra

    @abstractmethod
    def fingerprint(self, cache: Path) -> str:
        """Another text whenever `open` would give other pairs; quick, so that a cache can ask."""

    @abstractmethod
    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        """The pairs of every split that the source itself has, `train` always among them.

        They may be read from their files as they are asked for, each split once.
        """

    def read(self, cache: Path) -> dict[str, Lines]:
        """All these pairs at once."""
        first = self.first_line()
        return {split: Lines(pairs, first=first) for split, pairs in self.open(cache).items()}

    def first_line(self) -> int:
        """The line of each file that its first pair stands on, from 1; the next pair on the next.

        Where there is no file with lines, pairs are counted like them.
        """
        return 1


def parallel(sources: Path, targets: Path) -> Iterator[Pair]:
    """Pair the lines of two files; UserError with both counts if they differ.

    Blank lines that only one of them has at its end do not count.
    """
    left, right = (read_lines(path, tolerated=NOT_UTF_8) for path in (sources, targets))
    for count, (source, target) in enumerate(zip_longest(left, right), start=1):
        if source is None or target is None:
            further = [source or target or "", *left, *right]
            if not any(map(has_text, further)):
                longer = targets if source is None else sources
                log.info("%s: left out %s at its end", longer, counted(len(further), "blank line"))
                return
            more = count - 1 + len(further)
            counts = (count - 1, more) if source is None else (more, count - 1)
            raise UserError(
                f"{sources} has {counted(counts[0], 'line')}, but {targets} has {counts[1]:,}: "
                "parallel files need one translation per line; find the missing line first"
            )
        yield Pair(source, target)


def present(path: Path) -> Path | None:
    """The file itself, or compressed; what is no regular file is for `text_hash` to refuse."""
    candidates = (path, *(path.with_name(path.name + ending) for ending in PACKED))
    return next((one for one in candidates if one.exists() and not one.is_dir()), None)


def or_held_out(key: str) -> str:
    """Return a message's advice on a missing split, by its key; none for train."""
    return f", or {key}=null to hold it out of train" if key.endswith((".dev", ".test")) else ""


def files_by_split(source: Source) -> dict[str, Path]:
    """Return the file of each split of a source that has one a split."""
    names = {split: getattr(source, split) for split in SPLITS}
    return {split: Path(name).expanduser() for split, name in names.items() if name is not None}


class Files(Source):
    """Two text files a split, one sentence a line, packed ones too (data=files)."""

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
        files = {split: list(paths) for split, paths in self._paths().items()}
        files |= {f"{split} links": [path] for split, path in self._links().items()}
        return " ".join(
            f"{name} {' '.join(map(text_hash, paths))}" for name, paths in files.items()
        )

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        pairs: dict[str, Iterable[Pair]] = {
            split: parallel(*both) for split, both in self._paths().items()
        }
        for split, path in self._links().items():
            pairs[split] = _aligned(pairs[split], path)
        return pairs

    def _links(self) -> dict[str, Path]:
        """The alignment files: of train, and of dev and test where they exist."""
        if self.alignments is None:
            return {}
        files = {}
        for split in SPLITS:
            name = self._name(split)
            path = self._folder / f"{name}.{self.alignments}"
            if split == "train" or (isinstance(name, str) and present(path)):
                files[split] = _existing(path, "data.alignments")
        return files

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
        if name != AUTO or split == "train":
            return name
        sides = (self._folder / f"{split}.{end}" for end in (self.source, self.target))
        return split if any(map(present, sides)) else None

    @property
    def _folder(self) -> Path:
        return Path(self.dir or ".").expanduser()


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


def find_files(
    folder: str | None, name: Name, languages: tuple[str, str], key: str
) -> tuple[Path, Path]:
    """The two files of a split, source first; UserError that names what was looked for."""
    root = Path(folder or ".").expanduser()
    if not root.is_dir():
        raise UserError(
            f"data.dir = {folder}: {root.absolute()} is not a folder; give the one that holds the "
            "text files"
        )
    wanted = (
        [f"{name}.{language}" for language in languages] if isinstance(name, str) else list(name)
    )
    files = [_existing(root / Path(file).expanduser(), key) for file in wanted]
    return files[0], files[1]


def _existing(path: Path, key: str) -> Path:
    if file := present(path):
        return file
    raise UserError(
        f"neither {path} nor {path.name}.gz exists; set data.dir (the folder), {key} (the file) "
        f"and data.source, data.target (the endings){or_held_out(key)}"
    )
