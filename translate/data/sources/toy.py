"""The toy grammar as a source: distinct German-English pairs with gold word alignments."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from translate.data.pair import Pair
from translate.data.sources.base import SPLITS, Source
from translate.errors import UserError

LANGUAGES = ("de", "en")


class Toy(Source):
    """conf/data/toy.yaml."""

    kind: Literal["toy"]
    train: PositiveInt
    dev: PositiveInt
    test: PositiveInt
    min_words: PositiveInt
    max_words: PositiveInt

    def fingerprint(self, cache: Path, seed: int) -> str:
        numbers = (self.train, self.dev, self.test, self.min_words, self.max_words, seed)
        return f"{_grammar()} {numbers}"

    def given(self) -> Collection[str]:
        return SPLITS

    def open(self, cache: Path, seed: int) -> Mapping[str, Iterable[Pair]]:
        if (self.source, self.target) not in (LANGUAGES, LANGUAGES[::-1]):
            raise UserError(
                f"data=toy is German-English (de, en), not data.source={self.source} "
                f"data.target={self.target}"
            )
        from translate.data.toy import (
            toy_pairs,
        )  # reads its words from files: only where they are asked for

        pairs = toy_pairs(
            train=self.train, dev=self.dev, test=self.test,
            min_words=self.min_words, max_words=self.max_words, seed=seed,
        )  # fmt: skip
        turn = self.source == "en"
        return {
            split: [
                Pair(p.target, p.source, "", tuple(sorted((t, s) for s, t in p.alignment)))
                if turn
                else Pair(p.source, p.target, "", tuple(sorted((s, t) for s, t in p.alignment)))
                for p in pairs[split]
            ]
            for split in ("train", "dev", "test")
        }


def _grammar() -> str:
    """A hash of the grammar's own code and words: other rules make another corpus."""
    home = resources.files("translate.data.toy")
    files = sorted((file for file in home.iterdir() if file.is_file()), key=lambda file: file.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
