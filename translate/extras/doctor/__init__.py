"""A doctor for parallel text: it finds mistakes before a model learns them.

A check takes the splits as they were read, before any cleaning, and gives findings; a finding names
lines. Checks look for what is rare in a corpus that is mostly right.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from translate.data.batching import TOKENS_ON_CPU, Mixture, TokenBatches
from translate.data.pairs import Lines, Pair
from translate.data.plain_text import spaced
from translate.data.sources import Source
from translate.data.tokenizer import WORD_START, Tokenizer, TokenizerConfig, train_tokenizer
from translate.errors import UserError
from translate.extras.doctor import checks
from translate.extras.doctor.checks import Finding, Splits, drawn
from translate.extras.doctor.misalignment import misaligned

Check = Callable[[Splits], Iterable[Finding]]

SIZES = (1000, 2000, 4000, 8000, 16000, 32000)
OFTEN = 100  # occurrences in training that a piece needs …
MOST_PIECES = 0.95  # … for this share of the vocabulary (Gowda & May 2020)
SAMPLE = 30_000  # sentences a size is tried on


@dataclass(frozen=True)
class Diagnosis:
    """The findings of a corpus, and settings for it; or the reason why none can be advised."""

    sizes: Mapping[str, int]  # pairs of each text
    findings: Sequence[Finding]
    advice: Advice | None
    problem: UserError | None

    def report(self, *, lines: int) -> Iterator[str]:
        """Yield it line by line, with at most `lines` lines of each finding."""
        sizes = ", ".join(f"{split} {count:,}" for split, count in self.sizes.items())
        yield f"pairs: {sizes}"
        yield from checks.report(self.findings, lines=lines)
        if self.advice is not None:
            yield from self.advice.report()

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for programs."""
        findings = [asdict(finding) for finding in self.findings]
        return {"findings": findings, "advice": self.advice and asdict(self.advice)}


def diagnose(source: Source, tokenizer: TokenizerConfig, cache: Path) -> Diagnosis:
    """Read a corpus and examine it: its splits, and each further text beside its dev and test."""
    splits = source.read(cache.expanduser())
    extras = {name: Lines(extra.open(), first=1) for name, extra in (source.extra or {}).items()}
    codes, allowed = (source.source, source.target), source.allow_overlap
    findings = examine(splits, all_checks(codes=codes, allow_overlap=allowed))
    for name, extra in (source.extra or {}).items():
        # with a tag, it may be in another language
        chosen = all_checks(codes=None if extra.tag else codes, allow_overlap=allowed)
        findings += of_extra(name, examine(splits | {"train": extras[name]}, chosen))
    # those that training drops are not learned from, and to try takes time with their square
    most = source.cleaning.max_characters or sys.maxsize
    short = [pair for pair in splits["train"] if max(len(pair.source), len(pair.target)) <= most]
    tokens = source.tokens_per_batch
    advice, problem = None, None
    try:
        advice = advise(
            {**splits, "train": short}, tokenizer, seed=source.seed,
            tokens_per_batch=TOKENS_ON_CPU if tokens == "auto" else tokens,
            pool_batches=source.pool_batches,
        )  # fmt: skip
    except UserError as error:  # reported last: a finding may well be why
        problem = error
    texts = splits | {f"extra.{name}": pairs for name, pairs in extras.items()}
    return Diagnosis({name: len(pairs) for name, pairs in texts.items()}, findings, advice, problem)


def all_checks(*, codes: tuple[str, str] | None, allow_overlap: bool) -> list[Check]:
    """Return every check; `codes` are the languages of the sides, if each is in one."""
    literal = partial(checks.literal, allow_one_side=allow_overlap)
    always: list[Check] = [
        checks.unreadable, checks.empty, checks.copies, checks.duplicates, literal, checks.near,
        checks.anomalies, checks.quoted, checks.outliers, checks.swapped_sides, misaligned,
    ]  # fmt: skip
    return [*always, partial(checks.other_languages, codes=codes)] if codes else always


def quick_look(splits: Splits, extra: str | None = None) -> list[str]:
    """Name the mistakes in the first lines that cleaning does not look for, or not there.

    With `extra` the training text is the further corpus of this name.
    """
    uncleaned = {split: pairs for split, pairs in splits.items() if split != "train"}
    findings = examine(uncleaned, (checks.empty, checks.copies)) + examine(
        splits,
        (checks.unreadable, checks.anomalies, checks.quoted, checks.outliers, checks.swapped_sides),
    )
    return [checks.headline(each) for each in (of_extra(extra, findings) if extra else findings)]


def shared_with_dev(splits: Mapping[str, Sequence[Pair]], *, allow_one_side: bool) -> list[str]:
    """Name test text that is in dev as well; `splits` need no training text."""
    literal = partial(checks.literal, allow_one_side=allow_one_side)
    return [checks.headline(each) for each in examine({"train": [], **splits}, [literal])]


def examine(splits: Splits, chosen: Iterable[Check]) -> list[Finding]:
    """Return all findings that name a line, in the order of the checks.

    A row that cannot be read is a finding of `checks.unreadable` alone.
    """
    rows = {(line.split, line.number) for each in checks.unreadable(splits) for line in each.lines}
    readable, findings = checks.without_unreadable(splits), list[Finding]()
    for check in chosen:
        if check is checks.unreadable:
            findings += check(splits)
            continue
        for finding in check(readable):
            lines = [line for line in finding.lines if (line.split, line.number) not in rows]
            findings.append(replace(finding, lines=lines))
    return [finding for finding in findings if finding.lines]


def of_extra(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in training text that is the further corpus `name`, under this name."""
    named = [
        replace(finding, lines=[
            replace(line, split=f"extra.{name}") for line in finding.lines if line.split == "train"
        ])
        for finding in findings
    ]  # fmt: skip
    return [finding for finding in named if finding.lines]


@dataclass(frozen=True)
class Advice:
    """Settings for a corpus, and the figures that they rest on."""

    # share of dev words that training has not, by side, if there is a dev
    unseen_words: Mapping[str, float]
    vocab_size: int  # the largest whose pieces are often enough, or the smallest tried
    pieces: int  # that the text gave it, no more than vocab_size
    often: float  # share of those of several characters that are
    pieces_per_word: float  # with that vocabulary
    max_length: int  # pieces without </s>; 99.9 % of the sentences are no longer
    padding: float  # share of padding in batches of that vocabulary

    def report(self) -> Iterator[str]:
        """Yield the figures and the flags that follow from them."""
        for side, share in self.unseen_words.items():
            yield f"dev words unseen in training, {side}: {share:.2%}"
        yield (
            f"pieces per word with a joint vocabulary of {self.pieces:,}: "
            f"{self.pieces_per_word:.2f}; padding in batches: {self.padding:.1%}"
        )
        if self.often < MOST_PIECES:
            yield (
                f"only {self.often:.0%} of its pieces occur {OFTEN} times, not {MOST_PIECES:.0%}: "
                "there is little text, and no smaller vocabulary was tried"
            )
        yield f"suggested: tokenizer.vocab_size={self.vocab_size} data.max_length={self.max_length}"


def advise(
    splits: Splits,
    settings: TokenizerConfig,
    *,
    seed: int,
    tokens_per_batch: int,
    pool_batches: int,
) -> Advice:
    """Try vocabularies of rising size on the training text, of which `seed` draws a part."""
    train = [splits["train"][index] for index in drawn(splits["train"], SAMPLE, seed=seed)]
    texts = [pair.source for pair in train] + [pair.target for pair in train]
    size, learned, often, ids = _largest(
        texts, settings, seed, scale=len(splits["train"]) / max(1, len(train))
    )
    lengths = np.array([len(pieces) + 1 for pieces in ids])
    words = sum(len(spaced(text).split()) for text in texts)
    longest = int(np.quantile(lengths, 0.999, method="higher"))
    source, target = lengths[: len(train)], lengths[len(train) :]
    short = np.maximum(source, target) <= max(longest, 1)
    source, target = source[short], target[short]
    batches = TokenBatches(
        Mixture([(len(source), 1.0)], lambda places: (source[places], target[places])),
        tokens_per_batch=max(tokens_per_batch, longest), pool_batches=pool_batches, seed=seed,
    )  # fmt: skip
    return Advice(
        unseen_words={
            side: _unseen(*([getattr(p, side) for p in splits[name]] for name in ("train", "dev")))
            for side in ("source", "target")
            if "dev" in splits
        },
        vocab_size=size,
        pieces=learned,
        often=often,
        pieces_per_word=float((lengths.sum() - len(lengths)) / max(1, words)),
        max_length=max(1, longest - 1),  # which does not count </s>
        padding=padding(batches),
    )  # fmt: skip


def _largest(
    texts: Sequence[str], settings: TokenizerConfig, seed: int, *, scale: float
) -> tuple[int, int, float, list[list[int]]]:
    """The largest size of which 95 % of the pieces occur 100 times, and what was learned with it.

    That is the number of pieces, the share of those that do, and the text in them.

    `scale` is how many times as large as `texts` the whole training text is.
    """
    options = settings.model_dump(exclude={"joint", "sampling", "pretrained", "vocab_size"}) | {
        "seed": seed
    }
    best = None
    for size in SIZES:
        try:
            tokenizer = train_tokenizer(texts, what="the text", vocab_size=size, **options)
        except UserError:  # the text has too many characters, or too few pieces, for this size
            if best is None:
                continue
            break
        ids = tokenizer.encode_all(texts, threads=1)
        often = _often(tokenizer, ids, OFTEN / scale)
        if best is None or often >= MOST_PIECES:
            best = (size, len(tokenizer), often, ids)
        if often < MOST_PIECES or len(tokenizer) < size:
            break
    if best is None:
        raise UserError("no vocabulary can be learned from this text: it is too short")
    return best


def _often(tokenizer: Tokenizer, ids: Iterable[Iterable[int]], times: float) -> float:
    """The share of pieces that occur often, without letters, all of which any vocabulary has."""
    counts = Counter(itertools.chain.from_iterable(ids))
    named = zip(tokenizer.pieces(list(counts)), counts.values(), strict=True)
    longer = [count for name, count in named if len(name.removeprefix(WORD_START)) > 1]
    return 1 - sum(count < times for count in longer) / max(1, len(longer))


def _unseen(train: Iterable[str], dev: Iterable[str]) -> float:
    """The share of the words of dev that training has not; where none stand apart, characters."""
    known = {word for sentence in train for word in spaced(sentence).split()}
    words = [word for sentence in dev for word in spaced(sentence).split()]
    return sum(word not in known for word in words) / max(1, len(words))


def padding(batches: TokenBatches) -> float:
    """The share of padding of one epoch, both sides together."""
    real = padded = 0
    for batch in batches.epoch(0):
        for lengths in (batch.source_lengths, batch.target_lengths):
            real += int(lengths.sum())
            padded += int(lengths.max()) * len(lengths)
    return 1 - real / max(1, padded)
