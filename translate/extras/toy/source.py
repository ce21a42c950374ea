"""The toy language as a source of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from translate.data.pairs import Pair
from translate.data.sources import SPLITS, Source
from translate.errors import UserError
from translate.extras.toy import toy_pairs

LANGUAGES = ("de", "en")
# Names the grammar's pairs, so that a corpus of other pairs is another one: change it together with
# the digest in tests/extras/test_toy.py. It was a hash of the grammar's files at commit 13c4fe6.
GRAMMAR = "a9044b7ee64d9dc7216cfa937ef11a645fd26cf084166ccab9f4813e66d9f344"


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
        pairs = toy_pairs(
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
