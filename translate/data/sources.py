"""Sources of sentence pairs: the node of each kind reads the text that it names."""

from __future__ import annotations

import json
import logging
import re
import reprlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from translate.config import Node
from translate.data.cleaning import Cleaning
from translate.data.pairs import Lines, Pair
from translate.data.text import read_lines, read_links, text_hash, without_surrogates
from translate.data.tokenizer import Tag
from translate.errors import UserError
from translate.names import on_demand
from translate.wording import counted

SPLITS = ("train", "dev", "test")
LanguageColumns = dict[str, str | int]
NonEmpty = Annotated[str, Field(min_length=1)]  # a name or a path: empty, it names nothing
NOT_UTF_8 = 0.01  # of the lines of a text: more are no slips
Groups = list[str | int]  # names of books or domains
MAIN = "main"  # the corpus of `data` itself, beside those of `data.extra`
log = logging.getLogger(__name__)
# a prefix (`train` for train.de and train.en) or both file names, source first
Name = NonEmpty | tuple[NonEmpty, NonEmpty]
OTHER_NAMES = ("valid", "val", "validation", "devel")  # for dev, in the corpora of others
AUTO = "auto"  # in place of a name: the split's own name, where there are such files
ONE_OBJECT = "data=jsonl takes one object per line"
BLANK = Pair("", "")  # of a blank line between others, so that pair n stays on line n
LANGUAGES = ("de", "en")
TOY_PAIRS = "translate.extras.toy:toy_pairs"
# Names the grammar's pairs, so that a corpus of other pairs is another one: change it together with
# the digest in tests/extras/test_toy.py. It was a hash of the grammar's files at commit 13c4fe6.
GRAMMAR = "a9044b7ee64d9dc7216cfa937ef11a645fd26cf084166ccab9f4813e66d9f344"


class HoldOut(Node):
    """The node `data.hold_out`: splits to take out of the training text where there are no files.

    At least half of the pairs must remain for training.
    """

    dev: PositiveInt | Groups = Field(
        description="a number of source sentences, each with all its translations, no sentence of "
        "which stays in training on either side; or a list of groups (books), taken whole: dev "
        "and test may then share sentences"
    )
    test: NonNegativeInt | Groups = Field(description="likewise; 0 for no test split")

    def contradictions(self) -> Iterator[str]:
        if isinstance(self.dev, list) and isinstance(self.test, list):
            for group in sorted(set(map(str, self.dev)) & set(map(str, self.test))):
                yield (
                    f"data.hold_out: dev and test both name the group {group}: give it to only one"
                )


class Splits(Node):
    """A name for each split in the source; null where the source has no such split."""

    train: NonEmpty = Field(description="the name of the split to train on")
    dev: NonEmpty | None = Field(description="of the one to choose by")
    test: NonEmpty | None = Field(description="of the one to report")

    def names(self) -> dict[str, str]:
        """The splits that the source has, in the order train, dev, test."""
        return {split: name for split in SPLITS if (name := getattr(self, split)) is not None}


class PairColumns(NamedTuple):
    """The columns of a table that hold what a pair is made of, by name, path or number from 1."""

    source: str | int
    target: str | int
    domain: str | int | None = None

    def with_keys(self) -> list[tuple[str | int, str]]:
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
        """Return the columns to read."""
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
    """Return a message's advice on a missing split, by its key; none for train."""
    return f", or {key}=null to hold it out of train" if key.endswith((".dev", ".test")) else ""


def column_of(language: str, key: str, columns: Mapping[str, str | int] | None) -> str | int:
    """Return the column of a language: one of `columns`, or the one of its own name."""
    if columns is None:
        return language
    if language not in columns:
        known = ", ".join(columns)
        raise UserError(
            f"data.{key} = {language} is not a language of this corpus; data.columns has {known}"
        )
    return columns[language]


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
        """Log that a split is taken out of train: its files may have another name."""
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
        root, files = Path(self.dir or ".").expanduser(), {}
        for split in SPLITS:
            name = self._name(split)
            path = root / f"{name}.{self.alignments}"
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
    """Return the whole of a relative path: one in a run's config.yaml may be of another folder."""
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
    files = [_existing(root / Path(file).expanduser(), key) for file in wanted]
    return files[0], files[1]


def _existing(path: Path, key: str) -> Path:
    if file := present(path):
        return file
    raise UserError(
        f"neither {path} nor {path.name}.gz exists; set data.dir (the folder), {key} (the file) "
        f"and data.source, data.target (the endings){or_held_out(key)}"
    )


class _Files(Table):
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


class Tsv(_Files):
    """Tab-separated values, one pair a line (data=tsv)."""

    kind: Literal["tsv"]
    header: bool = Field(description="whether the first line names the columns")

    def fingerprint(self, cache: Path) -> str:
        return f"{super().fingerprint(cache)} {self.header}"

    def first_line(self) -> int:
        return 2 if self.header else 1

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        places = self.places()
        return {
            split: read_tsv(path, places, header=self.header)
            for split, path in self._paths().items()
        }


class Jsonl(_Files):
    """One JSON object a line (data=jsonl)."""

    kind: Literal["jsonl"]

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        places = self.places()
        return {split: _read_jsonl(path, places) for split, path in self._paths().items()}


def read_tsv(path: Path, places: PairColumns, *, header: bool) -> Iterator[Pair]:
    """Pairs from columns, each a number from 1 or, with a header line, a name."""
    lines = _numbered(path)
    names = next(lines, (0, ""))[1].split("\t") if header else []
    positions = [_position(column, names, path, key) for column, key in places.with_keys()]
    last, key = max(zip(positions, (key for _, key in places.with_keys()), strict=True))
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
        yield _pair(cells[position] for position in positions)


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers from 1, without blank ones at its end."""
    held = []
    for number, line in enumerate(read_lines(path, tolerated=NOT_UTF_8), start=1):
        held.append((number, line))
        if line.strip(" "):
            yield from held
            held.clear()


def _position(column: str | int, names: list[str], path: Path, key: str) -> int:
    if column in names:
        return names.index(str(column))
    if str(column).isdecimal() and int(column) >= 1:
        return int(column) - 1
    commas = ", no tab: is it comma-separated?" if len(names) == 1 and "," in names[0] else ""
    there = (
        f"its header line has {', '.join(names)}{commas}"
        if names
        else "without a header line, columns are numbered from 1"
    )
    raise UserError(f"{key}: {path} has no column {column}; {there}")


def _read_jsonl(path: Path, places: PairColumns) -> Iterator[Pair]:
    for number, line in _numbered(path):
        if not line.strip():
            yield BLANK
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also of a number too long, a nest too deep
            raise UserError(f"{place} is not JSON ({error}): {ONE_OBJECT}") from None
        if not isinstance(row, dict):
            raise UserError(f"{place} is of type {type(row).__name__}: {ONE_OBJECT}")
        yield pair_at(row, places, place)


def pair_at(row: Any, places: PairColumns, place: str) -> Pair:
    """The pair of a row, which may be nested: a path such as `translation.de` leads there."""
    return _pair(_at_path(row, path, place, key) for path, key in places.with_keys())


def _pair(texts: Iterable[str]) -> Pair:
    """Return a pair of the texts of a row, in the order of its fields."""
    source, target, *domain = texts
    return Pair(source, target, "".join(domain))


def _at_path(row: Any, path: str | int, place: str, key: str) -> str:
    value = row
    flat = isinstance(row, Mapping) and str(path) in row  # a name may have a dot itself
    for step in [str(path)] if flat else str(path).split("."):
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


def read_sqlite(path: Path, query: str, places: PairColumns) -> list[Pair]:
    """Pairs from a query for source, target and, at will, group; `places` are :source, :target."""
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as database:
        try:
            rows = database.execute(
                query, {"source": str(places.source), "target": str(places.target)}
            ).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"data.query fails on {path} ({error})") from None
    if rows and len(rows[0]) not in (2, 3):
        raise UserError(
            f"data.query gives {counted(len(rows[0]), 'column')}; it needs source, target and "
            "perhaps group"
        )
    return [_pair(_sql_text(value, query) for value in row) for row in rows]


def _sql_text(value: object, query: str) -> str:
    """NULL is an empty text, a number its digits."""
    match value:
        case None:
            return ""
        case str() | int() | float():
            return str(value)
    raise UserError(
        f"data.query = {query!r} gives {reprlib.repr(value)}, which is not text; CAST it, or "
        "choose another column"
    )


class Toy(Source):
    """Distinct pairs of a German-English grammar, with gold links between words (data=toy)."""

    kind: Literal["toy"]
    train: PositiveInt = Field(description="pairs to train on")
    dev: PositiveInt = Field(description="pairs to choose by")
    test: PositiveInt = Field(
        description="pairs with combinations of words that training has never seen"
    )
    min_words: PositiveInt = Field(description="of a source sentence, at least")
    max_words: PositiveInt = Field(description="of a source sentence, at most")

    def fingerprint(self, cache: Path) -> str:
        numbers = (self.train, self.dev, self.test, self.min_words, self.max_words, self.seed)
        return f"{GRAMMAR} {numbers}"

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        if (self.source, self.target) not in (LANGUAGES, LANGUAGES[::-1]):
            raise UserError(
                f"data=toy is German-English (de, en), not data.source={self.source} "
                f"data.target={self.target}"
            )
        pairs = on_demand(TOY_PAIRS)(
            train=self.train, dev=self.dev, test=self.test,
            min_words=self.min_words, max_words=self.max_words, seed=self.seed,
        )  # fmt: skip
        turned = self.source == "en"
        return {
            split: [
                Pair(pair.target, pair.source, alignment=tuple(sorted((t, s) for s, t in links)))
                if turned
                else Pair(pair.source, pair.target, alignment=links)
                for pair in pairs[split]
                for links in [pair.alignment]
            ]
            for split in SPLITS
        }
