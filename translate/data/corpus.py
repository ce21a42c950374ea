"""A corpus from its configuration: fetch, clean, split, learn a vocabulary, tokenise, keep.

A prepared corpus is a folder of Arrow files named by a hash of all that went into it, so that the
same words, rules and tokenizer are prepared once; the files are memory-mapped, and a corpus may be
larger than memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow

from translate import config as schema
from translate import machine
from translate.data.account import LanguageCounts, account, language_account
from translate.data.batching import by_temperature
from translate.data.cleaning import Tell
from translate.data.pairs import ALIGNMENT, CHUNK, Item, at, mapped
from translate.data.plain_text import LATER_WORD
from translate.data.progress import progress
from translate.data.selection import Selection, Text, select
from translate.data.sources import MAIN, Source
from translate.data.tokenizer import (
    OFF,
    Sampling,
    Tokenizer,
    TokenizerConfig,
    Tokenizers,
    check_tokenizer,
    train_tokenizer,
)
from translate.errors import UserError
from translate.files import in_turn, new_folder
from translate.names import OnDemand

log = logging.getLogger(__name__)

NAMED_IN = 50_000  # training pairs, about, in which common names are looked for
NAMES, LEAST_OFTEN = 8, 20  # so many names, each at least so often there
PRACTISED = 0.999  # of the training sources: longer ones are too rare to be learned from
FORMAT = 7  # raise it when the same input would be prepared differently
# keys of `data` that change no prepared file
BATCHING = {
    "max_length",
    "tokens_per_batch",
    "pool_batches",
    "workers",
    "temperature",
    "modifiers",
    "short",
}
# `kind` of a source → its class
KINDS: Mapping[str, type[Source]] = OnDemand(
    {
        "files": "translate.data.sources:Files",
        "tsv": "translate.extras.tables:Tsv",
        "csv": "translate.extras.tables:Csv",
        "jsonl": "translate.extras.tables:Jsonl",
        "parquet": "translate.extras.tables:Parquet",
        "tmx": "translate.extras.localisation:Localisation",
        "xliff": "translate.extras.localisation:Localisation",
        "po": "translate.extras.localisation:Localisation",
        "hub": "translate.extras.downloads:Hub",
        "pypi": "translate.extras.downloads:PyPI",
        "toy": "translate.extras.toy.source:Toy",
    }
)
TEMPORARY = ".tmp-"  # between the key of a corpus that is being prepared and a random end
INTEGERS = pyarrow.int32()
TYPES = {
    "source": pyarrow.string(),
    "target": pyarrow.string(),
    "references": pyarrow.list_(pyarrow.string()),
    "source_ids": pyarrow.list_(INTEGERS),
    "target_ids": pyarrow.list_(INTEGERS),
    "source_length": INTEGERS,
    "target_length": INTEGERS,
    "alignment": ALIGNMENT,
    "group": pyarrow.string(),
}
Columns = dict[str, Sequence[Any]]


class Part(NamedTuple):
    """One of the corpora that the training pairs are of."""

    name: str
    pairs: int
    tag: str | None  # before every source
    weight: float  # how often a pair occurs in an epoch


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus.

    `train` has the columns source, target (text), source_ids, target_ids (int32, without `<s>` and
    `</s>`) and source_length, target_length (their lengths); `dev` and `test` have references (a
    list of texts) for target, and the target columns are those of the first reference. Corpora with
    gold word alignments have the column alignment, a list of [source word, target word], as well;
    where pairs are of books or domains, dev and test have the column group.
    `parts` stand in `train` one after the other, the main corpus first.
    """

    folder: Path
    tokenizers: Tokenizers
    train: pyarrow.Table
    parts: tuple[Part, ...]
    dev: pyarrow.Table
    test: pyarrow.Table | None
    report: dict[str, Any]
    source_language: str
    target_language: str

    def practised_length(self, most: int) -> int:
        """Return the pieces that all but one in a thousand training sources stay within.

        Args:
            most: longer ones are left out of training.
        """
        pieces = self.train.column("source_length").to_numpy()
        return int(np.quantile(pieces[pieces <= most], PRACTISED, method="higher"))

    def common_names(self) -> list[str]:
        """Return the words with a capital that most often stay as they are, the first of them.

        A name is behind another word on both sides, and a single piece or two.
        """
        step = max(1, len(self.train) // NAMED_IN)
        texts = (
            at(self.train, side, range(0, len(self.train), step)) for side in ("source", "target")
        )
        often = Counter(
            name
            for source, target in zip(*texts, strict=True)
            for name in {*LATER_WORD.findall(source)} & {*LATER_WORD.findall(target)}
            if name[0].isupper()
        )
        common = [name for name, times in often.most_common(NAMES) if times >= LEAST_OFTEN]
        tokenizers = self.tokenizers.source, self.tokenizers.target
        return [name for name in common if not any(side.is_rare(name) for side in tokenizers)]

    @property
    def identity(self) -> dict[str, str]:
        """Hashes that no other corpus or tokenizer has."""
        return {
            "corpus": self.folder.name,  # a hash of text and settings
            "source tokenizer": self.tokenizers.source.sha256,
            "target tokenizer": self.tokenizers.target.sha256,
        }


def check_data(config: Mapping[str, Any]) -> list[str]:
    """Return every problem of the node `data`, one line each."""
    return schema.chosen("data", config, KINDS)


def read_nodes(
    data: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> tuple[Source, TokenizerConfig]:
    """Read the nodes `data` and `tokenizer`; a UserError lists all their problems."""
    schema.check([*check_data(data), *check_tokenizer(tokenizer)])
    source = KINDS[data["kind"]].model_validate(dict(data))
    return source, TokenizerConfig.model_validate(dict(tokenizer))


def prepare(
    source: Source,
    tokenizer: TokenizerConfig,
    *,
    cache: Path,
    tell: Tell | None = None,
) -> Corpus:
    """Take the corpus of a source and its tokenizer from the cache, or make it now.

    Args:
        cache: folder for downloads and prepared corpora.
        tell: is given each training pair that cleaning leaves out. For a corpus from the cache the
            text is cleaned once more.

    Raises:
        UserError: for whatever is wrong with the configuration, the text or the cache, all before
        any training.
    """
    cache = cache.expanduser()
    folder = cache / "corpora" / _key(source, tokenizer, cache)
    try:
        if not folder.is_dir():
            _make(folder, source, tokenizer, cache, tell)
        elif tell is not None:
            log.info("this corpus is prepared already: cleaning its text again to list the drops")
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                select(source, cache, Path(scratch), tell)
    except OSError as error:
        raise UserError(
            f"the corpus cannot be written to the cache {cache} ({error.strerror or error}); free "
            "up space there, or choose another folder with cache=PATH or the variable "
            "TRANSLATE_CACHE"
        ) from None
    weights = {name: extra.weight for name, extra in (source.extra or {}).items()}
    return load(
        folder,
        sampling=tokenizer.sampling,
        weights={name: weight for name, weight in weights.items() if weight is not None},
        temperature=source.temperature,
    )


def load(
    folder: Path,
    *,
    sampling: Sampling = OFF,
    weights: Mapping[str, float] = MappingProxyType({}),
    temperature: float = 1.0,
) -> Corpus:
    """Open a prepared corpus; its tables are mapped into memory, not read.

    `weights` say how often the pairs of further corpora occur in an epoch; those of the corpora
    that it does not name follow from `temperature`.

    Raises:
        UserError: a file is missing or damaged.
    """
    try:
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        tables = {path.stem: mapped(path) for path in folder.glob("*.arrow")}
        main = {"pairs": report["splits"]["train"]["pairs"], "tag": report["tag"]}
        texts = {MAIN: main} | report["extra"]
        unweighted = {name: text["pairs"] for name, text in texts.items() if name not in weights}
        weights = by_temperature(unweighted, temperature) | dict(weights)
        parts = [
            Part(name, text["pairs"], text["tag"], weights[name]) for name, text in texts.items()
        ]
        if len(tables["train"]) != sum(part.pairs for part in parts):  # to Arrow a shorter table
            raise ValueError("train.arrow is cut short")
        return Corpus(
            folder=folder,
            tokenizers=Tokenizers.load(folder, sampling=sampling).tagged(main["tag"]),
            train=tables["train"],
            parts=tuple(parts),
            dev=tables["dev"],
            test=tables["test"] if "test" in report["splits"] else None,
            report=report,
            source_language=report["source"],
            target_language=report["target"],
        )
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(
            f"the prepared corpus {folder} is damaged ({error!r}): remove it, and it will be "
            "prepared again"
        ) from error


def _key(source: Source, tokenizer: TokenizerConfig, cache: Path) -> str:
    """Hash of the text and of all settings that shape what is made of it."""
    parts = [
        FORMAT,
        source.fingerprint(cache),
        source.model_dump(mode="json", exclude=BATCHING | {"dir", "extra"}),
        [(name, *text.fingerprint()) for name, text in (source.extra or {}).items()],
        _vocabulary(tokenizer),
    ]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _vocabulary(tokenizer: TokenizerConfig) -> Any:
    """Return what identifies a vocabulary: its pieces, or the settings to learn them with."""
    if tokenizer.pretrained is None:
        return tokenizer.model_dump(mode="json", exclude={"sampling", "pretrained"})
    pretrained = Tokenizers.find(Path(tokenizer.pretrained))
    for key, wanted, actual in (
        ("kind", tokenizer.kind, pretrained.source.kind),
        ("joint", tokenizer.joint, pretrained.joint),
    ):
        if wanted != actual:
            raise UserError(
                f"tokenizer.{key} = {json.dumps(wanted)}, but the vocabulary of "
                f"tokenizer.pretrained = {tokenizer.pretrained} has {json.dumps(actual)}: give "
                f"tokenizer.{key}={json.dumps(actual)}, or tokenizer.pretrained=null to learn one"
            )
    return [pretrained.source.sha256, pretrained.target.sha256]


# Making it. Text goes from file to file in chunks. What is held in memory is numbers for each pair
# (where it is, what tells its sentences from others), never the pairs.


def _make(
    folder: Path, source: Source, settings: TokenizerConfig, cache: Path, tell: Tell | None
) -> None:
    """Prepare a corpus in a temporary folder and rename it, so that its folder is always whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"another process prepares the corpus {folder}: waiting until it is there"
    with in_turn(Path(f"{folder}.lock"), waiting):
        for leftover in folder.parent.glob(f"{folder.name}{TEMPORARY}*"):  # of a killed process
            shutil.rmtree(leftover)
        if folder.is_dir():  # another process has made it while this one waited
            return
        with new_folder(folder, prefix=f"{folder.name}{TEMPORARY}") as temporary:
            scratch = temporary / "scratch"
            scratch.mkdir()
            _fill(temporary, source, settings, select(source, cache, scratch, tell))
            shutil.rmtree(scratch)


def _fill(folder: Path, source: Source, settings: TokenizerConfig, selection: Selection) -> None:
    texts, held_out, suspicious = selection
    tokenizers = _tokenizers(texts, source, settings)
    tokenizers.save(folder)
    counts = {text.name: {"source": LanguageCounts(), "target": LanguageCounts()} for text in texts}
    _write(folder / "train.arrow", _training_columns(texts, tokenizers, counts))
    tagged = tokenizers.tagged(source.tag)
    tables = {name: _item_columns(rows, tagged) for name, rows in held_out.items()}
    for name, columns in tables.items():
        _write(folder / f"{name}.arrow", [columns])
    report = account(source, settings, tokenizers, texts, held_out, counts) | {
        "suspicious": suspicious,
        "languages": {
            side: language_account(getattr(tokenizers, side), count, tables["dev"][f"{side}_ids"])
            for side, count in counts[MAIN].items()
        },
    }
    (folder / "report.json").write_text(
        json.dumps(report, indent=2, ensure_ascii=False), encoding="utf-8"
    )


class _Sentences:
    """The given sides of all training pairs, one after the other, read as they are asked for."""

    def __init__(self, texts: Sequence[Text], sides: Sequence[str]) -> None:
        self.texts, self.sides = texts, sides

    def __len__(self) -> int:
        return len(self.sides) * sum(len(text.pairs) for text in self.texts)

    def __iter__(self) -> Iterator[str]:
        for side in self.sides:
            for text in self.texts:
                yield from (getattr(pair, side) for pair in text.pairs)


def _tokenizers(texts: Sequence[Text], source: Source, settings: TokenizerConfig) -> Tokenizers:
    """Return the pretrained tokenizers, or learn them from the text."""
    tags = sorted({text.tag for text in texts if text.tag is not None})
    if settings.pretrained is None:
        return _train_tokenizers(texts, source, settings, tags)
    pretrained = Tokenizers.find(Path(settings.pretrained))
    if missing := [tag for tag in tags if tag not in pretrained.source.tags]:
        raise UserError(
            f"tokenizer.pretrained = {settings.pretrained} has no tag {', '.join(missing)}, which "
            "data names: leave the tag out, or learn a vocabulary with tokenizer.pretrained=null"
        )
    return pretrained


def _train_tokenizers(
    texts: Sequence[Text], source: Source, settings: TokenizerConfig, tags: Sequence[str]
) -> Tokenizers:
    learned = settings.model_dump(exclude={"joint", "sampling", "pretrained"})
    options = learned | {"seed": source.seed}
    with progress(f"Learning a vocabulary ({settings.kind})"):
        if settings.joint:
            sentences = _Sentences(texts, ("source", "target"))
            joint = train_tokenizer(sentences, what="the training text", tags=tags, **options)
            return Tokenizers(joint, joint)
        sources, targets = (
            train_tokenizer(
                _Sentences(texts, (side,)), what=f"the {language} training text",
                tags=tags if side == "source" else (), **options,
            )
            for side, language in (("source", source.source), ("target", source.target))
        )  # fmt: skip
        return Tokenizers(sources, targets)


def _training_columns(
    texts: Sequence[Text],
    tokenizers: Tokenizers,
    counts: Mapping[str, Mapping[str, LanguageCounts]],
) -> Iterator[Columns]:
    """The rows of training, `CHUNK` at a time; `counts` are kept as they pass."""
    aligned = any(text.pairs.aligned for text in texts)
    with progress("Tokenising", sum(len(text.pairs) for text in texts)) as advance:
        for text in texts:
            tagged = tokenizers.tagged(text.tag)
            pairs = iter(text.pairs)
            while chunk := list(islice(pairs, CHUNK)):
                columns: Columns = {
                    "source": [pair.source for pair in chunk],
                    "target": [pair.target for pair in chunk],
                }
                columns |= _token_columns(columns["source"], columns["target"], tagged)
                columns |= {"alignment": [pair.alignment for pair in chunk]} if aligned else {}
                for side, count in counts[text.name].items():
                    count.add(columns[side], columns[f"{side}_ids"])
                yield columns
                advance(len(chunk))


def _item_columns(rows: Sequence[Item], tokenizers: Tokenizers) -> Columns:
    sources = [row.source for row in rows]
    columns: Columns = {"source": sources, "references": [row.references for row in rows]}
    columns |= _token_columns(sources, [row.references[0] for row in rows], tokenizers)
    if any(row.alignment for row in rows):
        columns["alignment"] = [row.alignment for row in rows]
    if any(row.group for row in rows):
        columns["group"] = [row.group for row in rows]
    return columns


def _token_columns(
    sources: Sequence[str], targets: Sequence[str], tokenizers: Tokenizers
) -> Columns:
    columns: Columns = {}
    sides: tuple[tuple[str, Sequence[str], Tokenizer], ...] = (
        ("source", sources, tokenizers.source), ("target", targets, tokenizers.target)
    )  # fmt: skip
    for side, texts, tokenizer in sides:
        # threads of SentencePiece, beside Python's lock: the ids are the same whatever their number
        columns[f"{side}_ids"] = ids = tokenizer.encode_all(texts, threads=machine.cores())
        columns[f"{side}_length"] = list(map(len, ids))
    return columns


def _write(path: Path, chunks: Iterable[Columns]) -> None:
    """One Arrow stream file, as `datasets` maps them into memory."""
    tables = (
        pyarrow.table({name: pyarrow.array(rows, TYPES[name]) for name, rows in columns.items()})
        for columns in chunks
    )
    first = next(tables)
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_stream(file, first.schema) as writer,
    ):
        for table in chain([first], tables):
            writer.write_table(table, max_chunksize=CHUNK)
