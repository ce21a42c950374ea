"""An export is checked against the model, and written with what it was made of.

Both translate the same sentences greedily.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from translate.errors import UserError
from translate.files import replace_folder
from translate.inference.batches import by_length
from translate.inference.bundle import SOURCE, TARGET, Bundle
from translate.inference.forcing import TeacherForcing
from translate.models.seq2seq import Seq2Seq
from translate.search import build
from translate.search.constraints import length_limits
from translate.vocabulary import BOS, EOS, PAD
from translate.wording import counted

LARGEST_MANIFEST = 1 << 20  # bytes
MANIFEST = "export.json"  # which weights an export was made of, and the SHA-256 of its files
GREEDY: dict[str, Any] = {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 5}
TOKENS_PER_BATCH = 2048
TOLERANCE = 1e-3  # in log-probability: float32 rounds otherwise in every engine


@dataclass(frozen=True)
class Parity:
    """The comparison of two engines' translations.

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

    def summary(self) -> str:
        """Return the comparison in a line."""
        summary = (
            f"both translated {counted(self.sentences, 'sentence')} greedily: "
            f"{self.different} differ; log-probabilities differ by up to {self.gap:.2g}"
        )
        if not self.barred:
            return summary
        return (
            f"{summary}; {self.barred} of the export's translations contain <s> or <pad>, which "
            "this program never writes: compare on real sentences with input=FILE, or train the "
            "model further"
        )


class Exported(Protocol):
    """An exported model that translates."""

    def translate(self, sources: list[list[int]], limits: list[int]) -> list[tuple[int, ...]]:
        """Return the greedy translation of each source, cut at its limit; both without </s>."""

    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Score every token of translations, </s> included; both sides come without it."""


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
        scored = exported.log_probs(sources, [list(best.tokens) for best in expected])
        gaps += [
            abs(best.log_prob - sum(log_probs))
            for best, log_probs in zip(expected, scored, strict=True)
        ]
        forced = native.log_probs(sources, [list(tokens) for tokens in actual])
        for best, other, log_probs in zip(expected, actual, forced, strict=True):
            if best.tokens != other:
                different += 1
                # the first place where they differ; one may go on where the other ends
                pairs = enumerate(itertools.zip_longest(best.tokens, other))
                here = next(place for place, (mine, theirs) in pairs if mine != theirs)
                if other[here : here + 1] in ((PAD,), (BOS,)):
                    barred += 1
                else:
                    margins.append(abs(best.token_log_probs[here] - log_probs[here]))
    # not Python's max, which passes over NaN
    largest_gap, largest_margin = (float(np.max(each)) for each in (gaps, margins))
    return Parity(len(sentences), different, largest_gap, largest_margin, barred)


def write(
    bundle: Bundle,
    folder: Path,
    files: Mapping[str, bytes],
    quantization: str,
    parity: Parity,
    *,
    measured: str,
) -> None:
    """Replace `folder` by these files, the tokenizers, and what they were made of, with their sums.

    `measured` names the numbers that the parity was computed with.

    Raises:
        UserError: it cannot be written.
    """
    whole = {
        **files,
        SOURCE: bundle.tokenizers.source.to_bytes(),
        TARGET: bundle.tokenizers.target.to_bytes(),
    }
    origin = {
        "weights_sha256": bundle.weights_sha256,
        "quantization": quantization,
        "measured_as": measured,
        "parity": asdict(parity),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in whole.items()},
    }
    whole[MANIFEST] = (json.dumps(origin, indent=2) + "\n").encode()
    try:
        replace_folder(folder, whole)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}): choose another with output=FOLDER"
        ) from error
