"""The text that a corpus learns from and is judged by: read, cleaned, and kept apart."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from translate.data.cleaning import clean, drop_overlap, first_of_each
from translate.data.doctor import QUICK, examine, of_extra, overlap, quick_look
from translate.data.doctor.finding import Finding
from translate.data.doctor.report import headline
from translate.data.dropped import Drops, Tell
from translate.data.pair import Item, Pair, items
from translate.data.pair_table import PairTable
from translate.data.progress import progress
from translate.data.sources import MAIN, Source
from translate.data.splits import groups_of, take_components, take_groups
from translate.errors import UserError
from translate.wording import counted

log = logging.getLogger(__name__)


class Text(NamedTuple):
    """One corpus of the training text, clean: the main one or one of `data.extra`."""

    name: str
    pairs: PairTable
    tag: str | None  # before every source
    dropped: Counter[str]  # pairs, by rule
    held_out: int = 0  # pairs that went from it to dev and test


class Selection(NamedTuple):
    """The training texts, the main one first; the items of dev and test; what is suspicious."""

    texts: list[Text]
    held_out: dict[str, list[Item]]
    suspicious: list[str]


def select(source: Source, cache: Path, scratch: Path, tell: Tell | None = None) -> Selection:
    """Read and clean all text of a corpus; what training keeps stays in files of `scratch`.

    Each training pair that is left out is told to `tell`, if there is one.

    Raises:
        UserError: the text cannot be read or split, or nothing of it is left.
    """
    heads, given = _look(source.open(cache))
    source.tell_held_out()
    suspicious = _told(quick_look(heads))
    main, held_out = _clean_and_split(source, given, scratch, suspicious, tell)
    unseen = [Pair(row.source, text) for rows in held_out.values() for row in rows
              for text in row.references]  # fmt: skip
    texts = [main, *_extra(source, unseen, scratch, suspicious, tell)]
    return Selection(texts, held_out, suspicious)


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
    source: Source,
    given: Mapping[str, Iterable[Pair]],
    scratch: Path,
    suspicious: list[str],
    tell: Tell | None,
) -> tuple[Text, dict[str, list[Item]]]:
    """The main corpus of training, and the items of dev and test; to `suspicious` test text in dev.

    Splits that come with the source stay as they are, line by line: scores on them are compared
    with others'. Groups are whole, too, but for empty pairs. What is held out by number comes last,
    out of the text that shares no sentence with these.
    """
    drops = Drops(MAIN, first_line=source.first_line(), tell=tell)
    with progress(f"Reading {source.source}-{source.target} sentences"):
        wanted = {name: choice for name, choice in source.hold_out if name not in given}
        train = clean(
            given["train"], source.cleaning, scratch / MAIN, drops, whole=groups_of(wanted)
        )
        fixed = {name: list(pairs) for name, pairs in given.items() if name != "train"}
    in_dev = partial(overlap.literal, allow_one_side=source.allow_overlap)
    suspicious += _told(examine({"train": [], **fixed}, [in_dev]))
    if not train:
        raise UserError(_nothing_left("the training text", drops.counts))
    train, groups = take_groups(train, wanted)
    held = list(chain(*fixed.values(), *groups.values()))
    train = _without_overlap(train, held, source, "the training text", drops)
    if not train:
        raise UserError(_nothing_left("the training text", drops.counts))
    train, drawn = take_components(train, wanted, source.seed)
    held_out = {
        name: [Item(p.source, (p.target,), p.alignment, p.group) for p in pairs]
        for name, pairs in fixed.items()
    }
    taken = 0
    for name, pairs in (groups | drawn).items():
        # distinct as items are, even where cleaning leaves duplicates
        distinct, repeated = first_of_each(pairs)
        drops.of_table("duplicate", pairs, distinct, repeated)
        held_out[name] = items(distinct)
        taken += len(distinct)
    for name, rows in held_out.items():
        if not rows:
            raise UserError(
                f"the {name} split has no sentences; check data.{name} and data.hold_out.{name}"
            )
    return Text(MAIN, train, source.tag, drops.counts, taken), held_out


def _extra(
    source: Source,
    held_out: Sequence[Pair],
    scratch: Path,
    suspicious: list[str],
    tell: Tell | None,
) -> Iterator[Text]:
    """The further training corpora, by the rules of the main one; what is `suspicious` is added.

    They may translate the other way, so that a sentence is looked for on both sides.
    """
    held_out = [*held_out, *(p._replace(source=p.target, target=p.source) for p in held_out)]
    for name, extra in (source.extra or {}).items():
        drops = Drops(name, tell=tell)
        with progress(f"Reading data.extra.{name}"):
            heads, given = _look({"train": extra.open()})
            pairs = clean(given["train"], source.cleaning, scratch / name, drops)
        suspicious += _told(of_extra(name, quick_look(heads)))
        pairs = _without_overlap(pairs, held_out, source, f"data.extra.{name}", drops)
        if not pairs:
            raise UserError(_nothing_left(f"data.extra.{name}", drops.counts))
        yield Text(name, pairs, extra.tag, drops.counts)


def _without_overlap(
    pairs: PairTable, held_out: Sequence[Pair], source: Source, what: str, drops: Drops
) -> PairTable:
    """The pairs that share no sentence with dev or test; all under data.allow_overlap."""
    rest, overlap = drop_overlap(pairs, held_out, source.cleaning)
    if not overlap:
        return pairs
    allowed = source.allow_overlap
    log.warning(
        "%s %s of %s with a sentence of dev or test%s",
        "keeping" if allowed else "dropping", counted(overlap, "pair"), what,
        " (data.allow_overlap)" if allowed else "",
    )  # fmt: skip
    if allowed:
        return pairs
    drops.of_table("overlap", pairs, rest)
    return rest


def _nothing_left(text: str, dropped: Counter[str]) -> str:
    if not dropped:
        return f"{text} is empty: check the files or columns that data names"
    rules = ", ".join(f"{rule} {count}" for rule, count in dropped.most_common())
    return (
        f"none of the {dropped.total()} pairs of {text} is left ({rules}); check the columns of "
        "data and the rules of data.cleaning"
    )
