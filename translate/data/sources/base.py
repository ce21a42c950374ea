"""What every source of sentence pairs is: a node of the configuration that can read itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from translate.config import Node
from translate.data.cleaning import Cleaning
from translate.data.pair import Lines, Pair
from translate.data.splits import HoldOut
from translate.data.text import read_lines, text_hash
from translate.data.tokenizer import Tag
from translate.errors import UserError
from translate.wording import counted

SPLITS = ("train", "dev", "test")
LanguageColumns = dict[str, str | int]
NonEmpty = Annotated[str, Field(min_length=1)]  # a name or a path: empty, it names nothing
NOT_UTF_8 = 0.01  # of the lines of a text: more are no slips
MAIN = "main"  # the corpus of `data` itself, beside those of `data.extra`


class Splits(Node):
    """A name for each split in the source; null where the source has no such split."""

    train: NonEmpty = Field(description="the name of the split to train on")
    dev: NonEmpty | None = Field(description="of the one to choose by")
    test: NonEmpty | None = Field(description="of the one to report")

    def given(self) -> dict[str, str]:
        """The splits that the source has, in the order train, dev, test."""
        return {split: name for split in SPLITS if (name := getattr(self, split)) is not None}


class PairColumns(NamedTuple):
    """The columns of a table that hold what a pair is made of, by name, path or number from 1."""

    source: str | int
    target: str | int
    domain: str | int | None = None

    def given(self) -> list[tuple[str | int, str]]:
        """Each column, in the order of a pair's fields, and the key that names it."""
        both = [(self.source, "data.columns"), (self.target, "data.columns")]
        return both if self.domain is None else [*both, (self.domain, "data.domain")]


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
        description="splits to take out of the training text where the corpus has none"
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
        "name: {back: {source: mono.de, target: mono.en, weight: 0.5, tag: bt}}"
    )
    temperature: float = Field(
        ge=1,
        description="corpora without a weight are mixed by (their share of pairs)^(1/temperature): "
        "1 is every pair once per epoch, 5 is usual for several languages, more draws all corpora "
        "alike; for the batches alone: the vocabulary is learned from every pair once",
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
        if self.target == self.source:
            yield f"data.target = {self.target!r}: must be another language than data.source"
        weights = [extra.weight for extra in (self.extra or {}).values()]
        if self.temperature != 1 and None not in weights:
            yield (
                f"data.temperature = {self.temperature:g} mixes corpora without a weight, but "
                "data.extra has none: add one, or set it to 1"
            )

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

    def tell_held_out(self) -> None:
        """Log which splits are to be held out although their text may be there."""

    def first_line(self) -> int:
        """The line of each file that its first pair stands on, from 1; the next pair on the next.

        Where there is no file with lines, pairs are counted like them.
        """
        return 1


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

    def places(self) -> PairColumns:
        """Which columns to read."""
        return PairColumns(
            column_of(self.source, "source", self.columns),
            column_of(self.target, "target", self.columns),
            self.domain,
        )


def parallel(sources: Path, targets: Path) -> Iterator[Pair]:
    """Pair the lines of two files; UserError with both counts if they differ."""
    left, right = (read_lines(path, tolerated=NOT_UTF_8) for path in (sources, targets))
    for count, (source, target) in enumerate(zip_longest(left, right), start=1):
        if source is None or target is None:
            more = count + sum(1 for _ in chain(left, right))
            counts = (count - 1, more) if source is None else (more, count - 1)
            raise UserError(
                f"{sources} has {counted(counts[0], 'line')}, but {targets} has {counts[1]:,}: "
                "parallel files need one translation per line; find the missing line first"
            )
        yield Pair(source, target)


def present(path: Path) -> Path | None:
    """The file itself, or compressed; what is no regular file is for `text_hash` to refuse."""
    candidates = (path, path.with_name(path.name + ".gz"))
    return next((one for one in candidates if one.exists() and not one.is_dir()), None)


def or_held_out(key: str) -> str:
    """What a message on a split that is missing adds; `key` names it. Nothing for train's."""
    return f", or {key}=null to hold it out of train" if key.endswith((".dev", ".test")) else ""


def column_of(language: str, key: str, columns: Mapping[str, str | int] | None) -> str | int:
    """Where the sentences of a language stand; without `columns`, under its own name."""
    if columns is None:
        return language
    if language not in columns:
        known = ", ".join(columns)
        raise UserError(
            f"data.{key} = {language} is not a language of this corpus; data.columns has {known}"
        )
    return columns[language]
