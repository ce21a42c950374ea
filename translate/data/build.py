"""Making a prepared corpus: read, clean, split, learn a vocabulary, tokenise.

Text goes from file to file in chunks. What is held in memory is numbers for each pair (where it
is, what tells its sentences from others), never the pairs.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow

from translate import machine
from translate.data.account import LanguageCounts, account, language_account
from translate.data.cleaning import clean, drop_overlap
from translate.data.doctor import QUICK, examine, of_extra, quick_look
from translate.data.doctor.finding import Finding
from translate.data.doctor.overlap import LiteralOverlap
from translate.data.doctor.report import headline
from translate.data.pair import Item, Pair, items
from translate.data.pair_table import ALIGNMENT, CHUNK, PairTable, Text
from translate.data.progress import progress
from translate.data.sources import MAIN, Source
from translate.data.splits import groups_of, take_components, take_groups
from translate.data.tokenizer import Tokenizer, TokenizerConfig, Tokenizers
from translate.data.vocabulary_learning import train_tokenizer
from translate.durable import sync
from translate.errors import UserError

log = logging.getLogger(__name__)

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
) -> None:
    """Prepare in a temporary folder and rename it: under the final name all is always whole.

    Raises:
        UserError: the text cannot be prepared, or is not `unchanged` afterwards.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}{TEMPORARY}", dir=folder.parent))
    try:
        scratch = temporary / "scratch"
        scratch.mkdir()
        _fill(temporary, source, settings, cache, scratch)
        shutil.rmtree(scratch)
        if not unchanged():  # the folder's name is a hash of what was there before
            raise UserError(
                "the text of the corpus was changed while it was prepared: prepare it again, when "
                "nothing writes to its files"
            )
        temporary.chmod(0o755)  # mkdtemp's folders are private; a cache may be shared
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        temporary.replace(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(
    folder: Path, source: Source, settings: TokenizerConfig, cache: Path, scratch: Path
) -> None:
    heads, given = _look(source.open(cache))
    source.tell_held_out()
    suspicious = _told(quick_look(heads))
    main, held_out = _clean_and_split(source, given, scratch, suspicious)
    unseen = [Pair(row.source, text) for rows in held_out.values() for row in rows
              for text in row.references]  # fmt: skip
    texts = [main, *_extra(source, unseen, scratch, suspicious)]
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


def _look(
    given: Mapping[str, Iterable[Pair]],
) -> tuple[dict[str, list[Pair]], dict[str, Iterable[Pair]]]:
    """The first pairs of each split, and then all of them."""
    streams = {split: iter(pairs) for split, pairs in given.items()}
    heads = {split: list(islice(pairs, QUICK)) for split, pairs in streams.items()}
    return heads, {split: chain(heads[split], streams[split]) for split in streams}


def _told(findings: Iterable[Finding]) -> list[str]:
    """What is suspicious, in words, which are logged as well."""
    suspicious = [headline(finding) for finding in findings]
    for line in suspicious:
        log.warning("%s: run translate doctor with the same settings to see the lines", line)
    return suspicious


def _clean_and_split(
    source: Source, given: Mapping[str, Iterable[Pair]], scratch: Path, suspicious: list[str]
) -> tuple[Text, dict[str, list[Item]]]:
    """The main corpus of training, and the items of dev and test; to `suspicious` test text in dev.

    Splits that come with the source stay as they are, line by line: scores on them are compared
    with others'. Groups are whole, too, but for empty pairs. What is held out by number comes last,
    out of the text that shares no sentence with these.
    """
    with progress(f"Reading {source.source}-{source.target} sentences"):
        wanted = {name: choice for name, choice in source.hold_out if name not in given}
        train, dropped = clean(
            given["train"], source.cleaning, scratch / MAIN, whole=groups_of(wanted)
        )
        fixed = {name: list(pairs) for name, pairs in given.items() if name != "train"}
    literal = LiteralOverlap(allow_one_side=source.allow_overlap)
    suspicious += _told(examine({"train": [], **fixed}, [literal]))
    if not train:
        raise UserError(_nothing_left("the training text", dropped))
    train, groups = take_groups(train, wanted)
    held = list(chain(*fixed.values(), *groups.values()))
    train = _without_overlap(train, held, source, "the training text", dropped)
    if not train:
        raise UserError(_nothing_left("the training text", dropped))
    train, drawn = take_components(train, wanted, source.seed)
    held_out = {
        name: [Item(p.source, (p.target,), p.alignment, p.group) for p in pairs]
        for name, pairs in fixed.items()
    }
    by_name = groups | drawn
    held_out |= {name: items(pairs) for name, pairs in by_name.items()}
    for name, rows in held_out.items():
        if not rows:
            raise UserError(
                f"the {name} split has no sentences; check data.{name} and data.hold_out.{name}"
            )
    taken = sum(len(row.references) for name in by_name for row in held_out[name])
    # items merge equal pairs, even where cleaning leaves them in training
    dropped["duplicate"] += sum(map(len, by_name.values())) - taken
    return Text(MAIN, train, source.tag, dropped, taken), held_out


def _extra(
    source: Source, held_out: Sequence[Pair], scratch: Path, suspicious: list[str]
) -> Iterator[Text]:
    """The further training corpora, by the rules of the main one; what is `suspicious` is added.

    They may translate the other way, so that a sentence is looked for on both sides.
    """
    held_out = [*held_out, *(p._replace(source=p.target, target=p.source) for p in held_out)]
    for name, extra in (source.extra or {}).items():
        with progress(f"Reading data.extra.{name}"):
            heads, given = _look({"train": extra.open()})
            pairs, dropped = clean(given["train"], source.cleaning, scratch / name)
        suspicious += _told(of_extra(name, quick_look(heads)))
        pairs = _without_overlap(pairs, held_out, source, f"data.extra.{name}", dropped)
        if not pairs:
            raise UserError(_nothing_left(f"data.extra.{name}", dropped))
        yield Text(name, pairs, extra.tag, dropped)


def _without_overlap(
    pairs: PairTable, held_out: Sequence[Pair], source: Source, what: str, dropped: Counter[str]
) -> PairTable:
    """The pairs that share no sentence with dev or test; all under data.allow_overlap."""
    rest, overlap = drop_overlap(pairs, held_out, source.cleaning)
    if not overlap:
        return pairs
    allowed = source.allow_overlap
    log.warning(
        "%d pairs of %s share a sentence with dev or test and %s",
        overlap, what, "stay (data.allow_overlap)" if allowed else "were dropped",
    )  # fmt: skip
    if allowed:
        return pairs
    dropped["overlap"] = overlap
    return rest


def _nothing_left(text: str, dropped: Counter[str]) -> str:
    if not dropped:
        return f"{text} is empty: check the files or columns that data names"
    rules = ", ".join(f"{rule} {count}" for rule, count in dropped.most_common())
    return (
        f"none of the {dropped.total()} pairs of {text} is left ({rules}); check the columns of "
        "data and the rules of data.cleaning"
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
