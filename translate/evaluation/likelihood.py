"""How well a model expects the references: perplexity, and what compares across vocabularies."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from translate.inference.forcing import TooLongError

if TYPE_CHECKING:
    from translate.inference.translator import Translator

log = logging.getLogger(__name__)

NAMED = 5  # lines named one by one


@dataclass(frozen=True)
class Likelihood:
    """The first references of a corpus under a model: log P(references | sources) in nats."""

    log_prob: float
    tokens: int  # pieces of the model's own vocabulary, </s> included
    characters: int  # and an end a sentence: the same for every model
    left_out: int = 0  # pairs that are longer than the model reads
    unknown: int = 0  # of the tokens: those that are <unk>, which stands for any characters

    @property
    def perplexity(self) -> float:
        """exp(-log P / tokens): compares only models with the same target vocabulary."""
        return perplexity(self.log_prob, self.tokens)

    @property
    def bits_per_character(self) -> float:
        """-log2 P / characters: compares models that spell the same references in full."""
        return -self.log_prob / math.log(2) / self.characters

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Likelihood:
        """What `as_dict` was made of, by an older version too, which counted less."""
        names = [f.name for f in fields(cls) if f.name in values or f.default is MISSING]
        return cls(**{name: values[name] for name in names})

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain values for JSON, which has no infinity: its place is null."""
        finite = math.isfinite(self.perplexity)
        return {
            **asdict(self),
            "perplexity": self.perplexity if finite else None,
            "bits_per_character": self.bits_per_character,
        }


def likelihood(
    translator: Translator, sources: Sequence[str], references: Sequence[Sequence[str]]
) -> Likelihood | None:
    """Score the first reference of every item by teacher forcing.

    Pairs that are longer than the model reads are left out with a warning; None where all are.
    """
    first = [item[0] for item in references]
    left_out = 0
    try:
        scores = translator.score(sources, first)
    except TooLongError as error:
        _tell(error.indices, len(first))
        left_out = len(error.indices)
        kept = sorted(set(range(len(first))).difference(error.indices))
        if not kept:
            return None
        first = [first[i] for i in kept]
        scores = translator.score([sources[i] for i in kept], first)
    return Likelihood(
        log_prob=math.fsum(score.log_prob for score in scores),
        tokens=sum(score.tokens for score in scores),
        characters=sum(len(text) + 1 for text in first),
        left_out=left_out,
        unknown=sum(score.unknown for score in scores),
    )


def _tell(left_out: Sequence[int], pairs: int) -> None:
    lines = [str(index + 1) for index in left_out[:NAMED]] + ["…"] * (len(left_out) > NAMED)
    log.warning(
        "perplexity leaves out %d of %d pairs, which are longer than the model reads: line %s",
        len(left_out), pairs, ", ".join(lines),
    )  # fmt: skip


def perplexity(log_prob: float, tokens: int) -> float:
    """exp(-log P / tokens): how many pieces the model wavers between, on average."""
    try:
        return math.exp(-log_prob / tokens)
    except OverflowError:
        return math.inf
