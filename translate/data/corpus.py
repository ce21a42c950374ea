"""From a configuration to a corpus: fetch, clean, split, learn a vocabulary, tokenise, keep.

A prepared corpus is a folder of Arrow files named by a hash of all that went into it, so that the
same words, rules and tokenizer are prepared once; the files are memory-mapped, and a corpus may be
larger than memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow
from filelock import FileLock

from translate import schema
from translate.data.account import account, language_account
from translate.data.cleaning import clean, drop_overlap, tidy
from translate.data.doctor import quick_look
from translate.data.doctor.report import headline
from translate.data.pair import Item, Pair, items
from translate.data.progress import progress
from translate.data.sampling import Sampling
from translate.data.sources import KINDS, Source
from translate.data.splits import hold_out
from translate.data.tokenizer import (
    OFF,
    Tokenizer,
    TokenizerConfig,
    Tokenizers,
    check_tokenizer,
    train_tokenizer,
)
from translate.errors import UserError
from translate.wording import nearest

log = logging.getLogger(__name__)

FORMAT = 1  # raise it when the same input would be prepared differently
CHUNK = 10_000  # sentences tokenised at a time, and rows of an Arrow record batch
BATCHING = {
    "max_length",
    "tokens_per_batch",
    "pool_batches",
    "workers",
}  # keys of `data` that change no prepared file


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus.

    `train` has the columns source, target (text), source_ids, target_ids (int32, without `<s>` and
    `</s>`) and source_length, target_length (their lengths); `dev` and `test` have references (a
    list of texts) for target, and the target columns are those of the first reference. Corpora with
    gold word alignments have the column alignment, a list of [source word, target word], as well.
    """

    folder: Path
    tokenizers: Tokenizers
    train: datasets.Dataset
    dev: datasets.Dataset
    test: datasets.Dataset | None
    report: dict[str, Any]
    source_language: str
    target_language: str


def check_data(config: Mapping[str, Any]) -> list[str]:
    """Every problem of the node `data`, one line each."""
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return [f"data.kind = {kind!r} is no kind of source{nearest(str(kind), KINDS)}"]
    return schema.problems(KINDS[kind], config, "data")


def prepare(data: Mapping[str, Any], tokenizer: Mapping[str, Any], *, cache: Path) -> Corpus:
    """The corpus that the nodes `data` and `tokenizer` describe, from the cache or made now.

    Args:
        data: the node, of one of the kinds of translate/data/sources.
        tokenizer: the node, as TokenizerConfig.
        cache: folder for downloads and prepared corpora.

    Raises:
        UserError: for whatever is wrong with the configuration, the text or the cache, all before
        any training.
    """
    schema.check([*check_data(data), *check_tokenizer(tokenizer)])
    source = KINDS[data["kind"]].model_validate(dict(data))
    settings = TokenizerConfig.model_validate(dict(tokenizer))
    cache = Path(cache).expanduser()
    folder = cache / "corpora" / _key(source, tokenizer, cache)
    with _writing(cache):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not folder.is_dir():  # another process may have made it while this one waited
                    _build(source, settings, cache, folder)
    return load(folder, sampling=settings.sampling)


def load(folder: Path, *, sampling: Sampling = OFF) -> Corpus:
    """Open a prepared corpus; of its tables nothing is read yet but their outlines."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    tables = {
        path.stem: datasets.Dataset.from_file(str(path), split=datasets.NamedSplit(path.stem))
        for path in folder.glob("*.arrow")
    }
    return Corpus(
        folder=folder,
        tokenizers=Tokenizers.load(folder, sampling=sampling),
        train=tables["train"],
        dev=tables["dev"],
        test=tables.get("test"),
        report=report,
        source_language=report["source"],
        target_language=report["target"],
    )


def _key(source: Source, tokenizer: Mapping[str, Any], cache: Path) -> str:
    """Hash of the text and of all settings that shape what is made of it."""
    parts = (
        FORMAT,
        source.fingerprint(cache, source.seed),
        source.model_dump(mode="json", exclude=BATCHING | {"dir"}),
        {key: value for key, value in tokenizer.items() if key != "sampling"},
        source.seed,
    )
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


@contextmanager
def _writing(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the corpus cannot be written to the cache {cache} ({error.strerror or error}); free "
            "space there, or "
            "choose another folder with cache=PATH or the variable TRANSLATE_CACHE"
        ) from None


def _build(source: Source, settings: TokenizerConfig, cache: Path, folder: Path) -> None:
    """Prepare in a temporary folder and rename it: under the final name all is always whole."""
    for stale in folder.parent.glob(f"{folder.name}.tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)  # of a process that died; the lock is ours
    with progress(f"Reading {source.source}-{source.target} sentences"):
        given = source.read(cache, source.seed)
    suspicious = [headline(finding) for finding in quick_look(given)]
    for line in suspicious:
        log.warning("%s: translate doctor with the same settings shows the lines", line)
    train, held_out, cleaned = _clean_and_split(source, given)
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        tokenizers = _train_tokenizers(train, source, settings)
        tokenizers.save(temporary)
        columns = {"train": _train_columns(train, tokenizers)}
        columns |= {name: _item_columns(rows, tokenizers) for name, rows in held_out.items()}
        for name, table in columns.items():
            _write(temporary / f"{name}.arrow", table)
        report = account(source, settings, tokenizers, cleaned, train, held_out) | {
            "suspicious": suspicious,
            "languages": {
                side: language_account(
                    getattr(tokenizers, side),
                    columns["train"][side],
                    columns["train"][f"{side}_ids"],
                    columns["dev"][f"{side}_ids"],
                )
                for side in ("source", "target")
            },
        }
        (temporary / "report.json").write_text(
            json.dumps(report, indent=2, ensure_ascii=False), encoding="utf-8"
        )
        temporary.chmod(0o755)  # mkdtemp's folders are private; a cache may be shared
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _clean_and_split(
    source: Source, given: Mapping[str, list[Pair]]
) -> tuple[list[Pair], dict[str, list[Item]], Counter[str]]:
    """Training pairs, items of dev and test, and how many pairs each rule dropped.

    Splits that come with the source stay as they are, line by line: scores on them are compared
    with others'.
    """
    train, dropped = clean(tidy(given["train"], source.cleaning), source.cleaning)
    if not train:
        raise UserError(_nothing_left(len(given["train"]), dropped))
    fixed = {name: pairs for name, pairs in given.items() if name != "train"}
    wanted = {name: choice for name, choice in source.hold_out if name not in fixed}
    train, taken = hold_out(train, wanted, source.seed)
    held_out = {
        name: [Item(p.source, (p.target,), p.alignment) for p in pairs]
        for name, pairs in fixed.items()
    }
    held_out |= {name: items(pairs) for name, pairs in taken.items()}
    for name, rows in held_out.items():
        if not rows:
            raise UserError(
                f"the {name} split has no sentences; check data.{name} and data.hold_out.{name}"
            )
    rest, overlap = drop_overlap(
        train, [pair for pairs in (fixed | taken).values() for pair in pairs]
    )
    if overlap and source.allow_overlap:
        log.warning(
            "%d training pairs share a sentence with dev or test and stay (data.allow_overlap)",
            overlap,
        )
    elif overlap:
        log.warning("%d training pairs share a sentence with dev or test and were dropped", overlap)
        train, dropped["overlap"] = rest, overlap
    if not train:
        raise UserError(_nothing_left(len(given["train"]), dropped))
    return train, held_out, dropped


def _nothing_left(read: int, dropped: Counter[str]) -> str:
    if not read:
        return "the training text is empty: check the files or columns that data names"
    rules = ", ".join(f"{rule} {count}" for rule, count in dropped.most_common())
    return (
        f"none of {read} training pairs are left ({rules}); check the columns of data and "
        "the rules of data.cleaning"
    )


def _train_tokenizers(
    train: Sequence[Pair], source: Source, settings: TokenizerConfig
) -> Tokenizers:
    options = settings.model_dump(exclude={"joint", "sampling"}) | {"seed": source.seed}
    sources, targets = [pair.source for pair in train], [pair.target for pair in train]
    with progress(f"Learning a vocabulary ({settings.kind})"):
        if settings.joint:
            joint = train_tokenizer(sources + targets, what="the training text", **options)
            return Tokenizers(joint, joint)
        return Tokenizers(
            train_tokenizer(sources, what=f"the {source.source} training text", **options),
            train_tokenizer(targets, what=f"the {source.target} training text", **options),
        )


def _train_columns(train: Sequence[Pair], tokenizers: Tokenizers) -> dict[str, Any]:
    texts = {"source": [pair.source for pair in train], "target": [pair.target for pair in train]}
    return (
        texts
        | _token_columns(texts["source"], texts["target"], tokenizers)
        | _alignment_column(train)
    )


def _item_columns(rows: Sequence[Item], tokenizers: Tokenizers) -> dict[str, Any]:
    sources = [row.source for row in rows]
    texts = {"source": sources, "references": [row.references for row in rows]}
    first = [row.references[0] for row in rows]
    return texts | _token_columns(sources, first, tokenizers) | _alignment_column(rows)


def _token_columns(
    sources: Sequence[str], targets: Sequence[str], tokenizers: Tokenizers
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for side, texts, tokenizer in (
        ("source", sources, tokenizers.source),
        ("target", targets, tokenizers.target),
    ):
        columns[f"{side}_ids"] = ids = _encode(texts, tokenizer)
        columns[f"{side}_length"] = list(map(len, ids))
    return columns


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    ids: list[list[int]] = []
    with progress("Tokenising", len(texts)) as advance:
        for start in range(0, len(texts), CHUNK):
            ids += tokenizer.encode_all(texts[start : start + CHUNK], threads=os.cpu_count() or 1)
            advance(CHUNK)
    return ids


def _alignment_column(rows: Sequence[Pair | Item]) -> dict[str, Any]:
    return (
        {"alignment": [row.alignment for row in rows]} if any(row.alignment for row in rows) else {}
    )


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    """One Arrow stream file, as `datasets` maps them into memory."""
    integers = pyarrow.int32()
    types = {
        "source": pyarrow.string(),
        "target": pyarrow.string(),
        "references": pyarrow.list_(pyarrow.string()),
        "source_ids": pyarrow.list_(integers),
        "target_ids": pyarrow.list_(integers),
        "source_length": integers,
        "target_length": integers,
        "alignment": pyarrow.list_(pyarrow.list_(integers)),
    }
    table = pyarrow.table(
        {name: pyarrow.array(values, types[name]) for name, values in columns.items()}
    )
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=CHUNK)
