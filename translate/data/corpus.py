"""From a configuration to a corpus: fetch, clean, split, learn a vocabulary, tokenise, keep.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow
from filelock import FileLock, Timeout

from translate import config as schema
from translate.data.build import TEMPORARY, build
from translate.data.columns import mapped
from translate.data.dropped import Tell
from translate.data.mixing import by_temperature
from translate.data.sampling import Sampling
from translate.data.selection import select
from translate.data.sources import KINDS, MAIN, Source
from translate.data.tokenizer import OFF, TokenizerConfig, Tokenizers, check_tokenizer
from translate.errors import UserError
from translate.wording import counted

log = logging.getLogger(__name__)

FORMAT = 7  # raise it when the same input would be prepared differently
# keys of `data` that change no prepared file
BATCHING = {"max_length", "tokens_per_batch", "pool_batches", "workers", "temperature"}


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

    @property
    def identity(self) -> dict[str, str]:
        """What tells it and its tokenizers from all others."""
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
    with _writing(cache):
        made = _make(folder, source, tokenizer, cache, tell)
        if tell is not None and not made:
            _tell_again(folder, source, cache, tell)
    given = {name: extra.weight for name, extra in (source.extra or {}).items()}
    return load(
        folder,
        sampling=tokenizer.sampling,
        weights={name: weight for name, weight in given.items() if weight is not None},
        temperature=source.temperature,
    )


def load(
    folder: Path,
    *,
    sampling: Sampling = OFF,
    weights: Mapping[str, float] = MappingProxyType({}),
    temperature: float = 1.0,
) -> Corpus:
    """Open a prepared corpus; of its tables nothing is read yet but their outlines.

    `weights` say how often the pairs of further corpora occur in an epoch; those of the corpora
    that it does not name follow from `temperature`.

    Raises:
        UserError: a file is missing or damaged.
    """
    with _reading(folder):
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        tables = {path.stem: mapped(path) for path in folder.glob("*.arrow")}
        main = {"pairs": report["splits"]["train"]["pairs"], "tag": report["tag"]}
        texts = {MAIN: main} | report["extra"]
        _check_rows(tables, report, sum(text["pairs"] for text in texts.values()))
        own = {name: text["pairs"] for name, text in texts.items() if name not in weights}
        weights = by_temperature(own, temperature) | dict(weights)
        parts = [
            Part(name, text["pairs"], text["tag"], weights[name]) for name, text in texts.items()
        ]
        return Corpus(
            folder=folder,
            tokenizers=Tokenizers.load(folder, sampling=sampling).tagged(main["tag"]),
            train=tables["train"],
            parts=tuple(parts),
            dev=tables["dev"],
            test=tables.get("test"),
            report=report,
            source_language=report["source"],
            target_language=report["target"],
        )


def _make(
    folder: Path, source: Source, settings: TokenizerConfig, cache: Path, tell: Tell | None
) -> bool:
    """Prepare a corpus where none is; whether it was made here and now."""
    if folder.is_dir():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    with _locked(folder):
        if folder.is_dir():  # another process may have made it while this one waited
            return False
        build(
            source, settings, cache, folder,
            unchanged=lambda: _key(source, settings, cache) == folder.name, tell=tell,
        )  # fmt: skip
    return True


def _tell_again(folder: Path, source: Source, cache: Path, tell: Tell) -> None:
    """Clean the text of a corpus that is there already, to tell what was left out of it.

    Raises:
        UserError: it is no longer the text that the corpus was prepared from.
    """
    report = load(folder).report
    log.info("this corpus is prepared already: cleaning its text again to list what was dropped")
    with (
        _locked(folder),  # whoever sweeps leaves the scratch alone
        tempfile.TemporaryDirectory(
            prefix=f"{folder.name}{TEMPORARY}", dir=folder.parent
        ) as scratch,
    ):
        texts = select(source, cache, Path(scratch), tell).texts
    dropped = {name: text["dropped"] for name, text in {MAIN: report, **report["extra"]}.items()}
    for text in texts:
        for rule, count in dropped[text.name].items():
            if text.dropped[rule] != count:
                raise UserError(
                    f"the text of the corpus has changed since {folder} was prepared: of "
                    f"{text.name} the rule {rule} dropped {counted(count, 'pair')} then, and now "
                    f"{text.dropped[rule]:,}; remove that folder, and it will be prepared again"
                )


def _check_rows(tables: Mapping[str, pyarrow.Table], report: Mapping[str, Any], pairs: int) -> None:
    """Arrow reads a stream that is cut off between two batches as one that ends there.

    Raises:
        KeyError: a table is missing.
        ValueError: one is cut short.
    """
    rows = {name: split["items"] for name, split in report["splits"].items()} | {"train": pairs}
    for name, count in rows.items():
        if tables[name].num_rows != count:
            raise ValueError(f"{name}.arrow has {tables[name].num_rows:,} of {count:,} rows")


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
    """What tells it from others: the pieces that are given, or how they are to be learned."""
    if tokenizer.pretrained is None:
        return tokenizer.model_dump(mode="json", exclude={"sampling", "pretrained"})
    given = Tokenizers.find(Path(tokenizer.pretrained))
    for key, wanted, found in (
        ("kind", tokenizer.kind, given.source.kind), ("joint", tokenizer.joint, given.joint)
    ):  # fmt: skip
        if wanted != found:
            raise UserError(
                f"tokenizer.{key} = {json.dumps(wanted)}, but the vocabulary of "
                f"tokenizer.pretrained = {tokenizer.pretrained} has {json.dumps(found)}: give "
                f"tokenizer.{key}={json.dumps(found)}, or tokenizer.pretrained=null to learn one"
            )
    return [given.source.sha256, given.target.sha256]


def _sweep(corpora: Path) -> None:
    """Remove what killed processes left: what has no process that holds its corpus' lock."""
    for left in corpora.glob(f"*{TEMPORARY}*"):
        key = left.name.partition(TEMPORARY)[0]
        with suppress(Timeout, OSError), FileLock(corpora / f"{key}.lock", blocking=False):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """While no other process prepares this corpus; that it is waited for is told."""
    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        log.info("another process prepares the corpus %s: waiting until it is there", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        what = error if isinstance(error, UserError) else repr(error)
        raise UserError(
            f"the prepared corpus {folder} is damaged ({what}): remove it, and it will be "
            "prepared again"
        ) from error


@contextmanager
def _writing(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the corpus cannot be written to the cache {cache} ({error.strerror or error}); free "
            "up space there, or choose another folder with cache=PATH or the variable "
            "TRANSLATE_CACHE"
        ) from None
