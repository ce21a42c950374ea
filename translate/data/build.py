"""Making a prepared corpus: select the text, learn a vocabulary, tokenise.

Text goes from file to file in chunks. What is held in memory is numbers for each pair (where it
is, what tells its sentences from others), never the pairs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow

from translate import machine
from translate.data.account import LanguageCounts, account, language_account
from translate.data.dropped import Tell
from translate.data.pair import Item
from translate.data.pair_table import ALIGNMENT, CHUNK
from translate.data.progress import progress
from translate.data.selection import Selection, Text, select
from translate.data.sources import MAIN, Source
from translate.data.tokenizer import Tokenizer, TokenizerConfig, Tokenizers
from translate.data.vocabulary_learning import train_tokenizer
from translate.errors import UserError
from translate.files import new_folder

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


def build(
    source: Source,
    settings: TokenizerConfig,
    cache: Path,
    folder: Path,
    *,
    unchanged: Callable[[], bool],
    tell: Tell | None = None,
) -> None:
    """Prepare in a temporary folder and rename it: under the final name all is always whole.

    Each training pair that is left out is told to `tell`, if there is one.

    Raises:
        UserError: the text cannot be prepared, or is not `unchanged` afterwards.
    """
    with new_folder(folder, prefix=f"{folder.name}{TEMPORARY}") as temporary:
        scratch = temporary / "scratch"
        scratch.mkdir()
        selection = select(source, cache, scratch, tell)
        _fill(temporary, source, settings, selection)
        shutil.rmtree(scratch)
        if not unchanged():  # the folder's name is a hash of what was there before
            raise UserError(
                "the text of the corpus was changed while it was prepared: prepare it again, when "
                "nothing writes to its files"
            )


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
    """Those that are given, or learned from the text."""
    tags = sorted({text.tag for text in texts if text.tag is not None})
    if settings.pretrained is None:
        return _train_tokenizers(texts, source, settings, tags)
    given = Tokenizers.find(Path(settings.pretrained))
    if missing := [tag for tag in tags if tag not in given.source.tags]:
        raise UserError(
            f"tokenizer.pretrained = {settings.pretrained} has no tag {', '.join(missing)}, which "
            "data names: leave the tag out, or learn a vocabulary with tokenizer.pretrained=null"
        )
    return given


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
