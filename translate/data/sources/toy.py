"""The toy grammar as a source: distinct German-English pairs with gold word alignments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt

from translate.data.pair import Pair
from translate.data.sources.base import SPLITS, Source
from translate.errors import UserError

if TYPE_CHECKING:
    from translate.data.toy import ToyPair

LANGUAGES = ("de", "en")


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
        return f"{_grammar()} {numbers}"

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        if (self.source, self.target) not in (LANGUAGES, LANGUAGES[::-1]):
            raise UserError(
                f"data=toy is German-English (de, en), not data.source={self.source} "
                f"data.target={self.target}"
            )
        # it reads its words from files: only where they are asked for
        from translate.data.toy import toy_pairs

        pairs = toy_pairs(
            train=self.train, dev=self.dev, test=self.test,
            min_words=self.min_words, max_words=self.max_words, seed=self.seed,
        )  # fmt: skip
        pair = _turned if self.source == "en" else _as_is
        return {split: list(map(pair, pairs[split])) for split in SPLITS}


def _as_is(pair: ToyPair) -> Pair:
    return Pair(pair.source, pair.target, alignment=pair.alignment)


def _turned(pair: ToyPair) -> Pair:
    links = tuple(sorted((t, s) for s, t in pair.alignment))
    return Pair(pair.target, pair.source, alignment=links)


def _grammar() -> str:
    """A hash of the grammar's own code and words: other rules make another corpus."""
    home = resources.files("translate.data.toy")
    files = sorted((file for file in home.iterdir() if file.is_file()), key=lambda file: file.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
