"""Whether an exported model is the model: both translate the same sentences greedily."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from translate.errors import UserError
from translate.inference.batches import by_length
from translate.inference.forcing import TeacherForcing
from translate.models.seq2seq import Seq2Seq
from translate.search import build
from translate.search.constraints import length_limits
from translate.vocabulary import BOS, EOS, PAD
from translate.wording import counted

GREEDY: dict[str, Any] = {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 5}
TOKENS_PER_BATCH = 2048
TOLERANCE = 1e-3  # in log-probability: float32 rounds otherwise in every engine


@dataclass(frozen=True)
class Parity:
    """How the translations of two engines compare.

    Attributes:
        sentences: how many were translated.
        different: how many came out another way.
        gap: the largest difference between the log-probabilities that the two give a translation
            (the model's).
        margin: how much likelier, at most, the model finds one of the two tokens than the other
            where they part; 0 where they never do.
        barred: in how many they part because the export writes <pad> or <s>, as ours never does.
    """

    sentences: int
    different: int
    gap: float
    margin: float
    barred: int = 0

    def check(self) -> None:
        """Refuse what rounding in float32 does not explain.

        Raises:
            UserError: the export computes something else than the model, or there was no sentence.
        """
        if not self.sentences:
            raise UserError(
                "there was no sentence to compare the model and its export on, so nothing was "
                "written: give a file with words in it as input=, or leave it out"
            )
        if not (self.gap <= TOLERANCE and self.margin <= TOLERANCE):  # so put, for NaN
            raise UserError(
                f"the export does not match the model: {self.different} of {self.sentences} "
                f"translations differ, log-probabilities by up to {self.gap:.2g}, and those of "
                f"the words where they diverge by up to {self.margin:.2g}, but rounding only "
                f"explains {TOLERANCE}. Nothing was written; please report this with the versions "
                "of torch and of the engine"
            )

    def told(self, *, random: bool) -> str:
        """The comparison in a line; `random`: of random pieces, which are no language."""
        told = (
            f"both translated {counted(self.sentences, 'sentence')} greedily: "
            f"{self.different} differ; log-probabilities differ by up to {self.gap:.2g}"
        )
        if not self.barred:
            return told
        why = (
            "the sentences were random pieces, so compare on real ones with input=FILE"
            if random
            else "only a poorly trained model finds these likely, so train it further"
        )
        return (
            f"{told}; {self.barred} of the export's translations contain <s> or <pad>, which this "
            f"program never writes: {why}"
        )


class Exported(Protocol):
    """What was exported, as it translates."""

    def translate(self, sources: list[list[int]], limits: list[int]) -> list[tuple[int, ...]]:
        """What greedy search finds for each source, no more tokens than its limit; without </s>."""

    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Of every token of given translations, </s> included; both sides come without it."""


def compare(model: Seq2Seq, exported: Exported, sentences: Sequence[list[int]]) -> Parity:
    """Translate these pieces (without </s>) by the model, which is on the CPU, and its export."""
    native, search = TeacherForcing(model, torch.device("cpu")), build(GREEDY)
    different, barred, gaps, margins = 0, 0, [0.0], [0.0]
    for batch in by_length([len(ids) + 1 for ids in sentences], TOKENS_PER_BATCH):
        sources = [sentences[i] for i in batch]
        expected = [
            best for best, *_ in search(model, *native.padded([[*ids, EOS] for ids in sources]))
        ]
        limits = length_limits(
            [len(ids) + 1 for ids in sources],
            GREEDY["max_length_ratio"], GREEDY["max_length_offset"], max_length=model.max_length,
        )  # fmt: skip
        actual = exported.translate(sources, limits)
        scored = exported.log_probs(sources, [list(found.tokens) for found in expected])
        gaps += [
            abs(own.log_prob - sum(log_probs))
            for own, log_probs in zip(expected, scored, strict=True)
        ]
        forced = native.log_probs(sources, [list(tokens) for tokens in actual])
        for own, other, log_probs in zip(expected, actual, forced, strict=True):
            if own.tokens != other:
                different += 1
                here = _parting(own.tokens, other)
                if other[here : here + 1] in ((PAD,), (BOS,)):
                    barred += 1
                else:
                    margins.append(abs(own.token_log_probs[here] - log_probs[here]))
    # not Python's max, which passes over NaN
    largest_gap, largest_margin = (float(np.max(found)) for found in (gaps, margins))
    return Parity(len(sentences), different, largest_gap, largest_margin, barred)


def _parting(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place where two translations differ; one may go on where the other ends."""
    pairs = itertools.zip_longest(one, other)
    return next(place for place, (mine, theirs) in enumerate(pairs) if mine != theirs)
