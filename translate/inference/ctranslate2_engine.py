"""Search by CTranslate2 over weights that `translate export` has written in its format."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.files import file_hash
from translate.inference.batches import by_length
from translate.inference.ctranslate2_export import POSITIONS, imported, vocabulary
from translate.machine import threads_restored
from translate.models.seq2seq import Seq2Seq
from translate.search import Hypothesis
from translate.search.constraints import Constraint, Constraints, length_limits
from translate.search.rules import NO_RULES, RulesConfig
from translate.search.scoring import PENALTIES, LengthPenalty

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 16384}  # with more a CPU is slower
MANIFEST = "export.json"  # which weights an export was made of, and the SHA-256 of its files


@dataclass(frozen=True)
class Settings:
    """The keys of conf/search that CTranslate2 carries; greedy search is a beam of one."""

    max_length_ratio: float
    max_length_offset: int
    beam_size: int = 1
    length_penalty: LengthPenalty = "none"
    alpha: float = 0.0
    n_best: int = 1


CARRIED = {field.name for field in fields(Settings)}


def search_problems(search: Mapping[str, Any]) -> list[str]:
    """Why CTranslate2 cannot search like that, one line each. `search` is valid otherwise."""
    kind = search["kind"]
    if kind not in ("greedy", "beam"):
        return [f"search.kind = {kind}: with engine=ctranslate2 it must be greedy or beam"]
    options = {key: value for key, value in search.items() if key not in ("kind", "rules")}
    rules = RulesConfig(**search["rules"]) if "rules" in search else NO_RULES
    options |= {f"rules.{key}": value for key, value in rules if value != getattr(NO_RULES, key)}
    return [
        f"search.{key} = {value}: engine=ctranslate2 has no such option; use engine=native"
        for key, value in options.items()
        if key not in CARRIED and value  # 0, false and null: it is off
    ]


class CTranslate2Search:
    """A `Search` that takes its probabilities from CTranslate2 and not from the model it is given.

    Hypotheses are scored and ranked as by our own searches, up to rounding. Its beam stays as wide
    as it was until the `beam_size`-th hypothesis has finished, so it may find others. Nothing
    forbids <pad> and <s>, for to forbid them would change the probabilities of the others.
    `token_log_probs` are empty: CTranslate2 does not tell them.

    Args:
        folder: what `translate export` wrote.
        search: keys of conf/search in which `search_problems` finds none.
        tokens_per_batch: padded source tokens of a batch; None: 4096, on a GPU 16384.
        workers: batches translated at once, each on a thread, but a single one on all; None is one
            a core.

    Raises:
        UserError: a device that is neither a CPU nor a GPU of NVIDIA's or AMD's.
    """

    rules = NO_RULES  # `search_problems` sees to it

    def __init__(
        self,
        folder: Path,
        tokenizers: Tokenizers,
        search: Mapping[str, Any],
        *,
        tokens_per_batch: int | None,
        workers: int | None,
        device: str | torch.device,
    ) -> None:
        place = torch.device(device)
        if place.type not in ("cpu", "cuda"):
            raise UserError(
                f"device={place}: engine=ctranslate2 does not support it; use device=cpu"
            )
        self._settings = Settings(**{key: search[key] for key in CARRIED & search.keys()})
        # CTranslate2 divides log P by length^exponent: exact but for `gnmt`, ranked again here
        self._exponent = {"none": 0.0, "average": 1.0, "gnmt": self._settings.alpha}[
            self._settings.length_penalty
        ]
        self._tokens_per_batch = tokens_per_batch or TOKENS_PER_BATCH[place.type]
        self._source = vocabulary(tokenizers.source)
        self._target = {piece: i for i, piece in enumerate(vocabulary(tokenizers.target))}
        cores = torch.get_num_threads() if place.type == "cpu" else 1
        with threads_restored():  # CTranslate2 sets the number of both: they share one OpenMP
            self._translator = imported().Translator(
                os.fsencode(folder),  # a name need not be UTF-8
                device=place.type,
                device_index=place.index or 0,
                inter_threads=(workers or cores) if place.type == "cpu" else 1,
                intra_threads=cores if workers == 1 else 1,
                max_queued_batches=-1,
            )

    @property
    def compute_type(self) -> str:
        """The numbers it computes with: those of the export, or others that this processor has."""
        return str(self._translator.compute_type)

    def __call__(
        self,
        model: Seq2Seq,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        *,
        constraints: Constraints = None,
        need_alignment: bool = False,
    ) -> list[list[Hypothesis]]:
        if need_alignment:
            raise UserError("engine=ctranslate2 does not provide attention: use engine=native")
        if any(constraint != Constraint() for constraint in constraints or ()):
            raise UserError(
                "engine=ctranslate2 takes neither prefixes nor phrases: use engine=native"
            )
        lengths = source_mask.sum(1).tolist()
        rows = [row[: length - 1] for row, length in zip(source.tolist(), lengths, strict=True)]
        limits = length_limits(
            lengths, self._settings.max_length_ratio, self._settings.max_length_offset,
            max_length=min(model.max_length or POSITIONS, POSITIONS),
        )  # fmt: skip
        return self._search(rows, limits)

    def translate(self, sources: list[list[int]], limits: list[int]) -> list[tuple[int, ...]]:
        """The best tokens for each source, no more than its limit; both sides without </s>."""
        return [best.tokens for best, *_ in self._search(sources, limits)]

    def _search(self, rows: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        found = self._translated(rows, limits, [range(len(rows))])
        # the longest limit of a batch holds: what meets its own is translated beside its like,
        # but for greedy search, which begins in the same way under any limit
        if self._settings.beam_size > 1:
            met = [i for i, one in found.items() if max(map(len, one.hypotheses)) >= limits[i]]
            by_limit = groupby(sorted(met, key=limits.__getitem__), limits.__getitem__)
            found |= self._translated(rows, limits, [list(alike) for _, alike in by_limit])
        return self._ranked(rows, [found[i] for i in range(len(rows))], limits)

    def _translated(
        self, rows: list[list[int]], limits: list[int], groups: Sequence[Sequence[int]]
    ) -> dict[int, Any]:
        """What the engine finds for these groups of rows, up to the longest limit of each batch."""
        settings, pending = self._settings, dict[int, Any]()
        for some in [batch for group in groups for batch in self._batches(rows, group)]:
            found = self._translator.translate_batch(
                [[self._source[token] for token in rows[i]] for i in some],
                beam_size=settings.beam_size,
                # all that the beam finishes, for their ranks may change
                num_hypotheses=settings.beam_size,
                length_penalty=self._exponent,
                min_decoding_length=0,
                max_input_length=0,  # else 1,024
                max_decoding_length=max(limits[i] for i in some),
                return_scores=True,
                asynchronous=True,
            )
            pending.update(zip(some, found, strict=True))
        return {i: one.result() for i, one in pending.items()}

    def _batches(self, rows: list[list[int]], chosen: Sequence[int]) -> Iterator[list[int]]:
        for batch in by_length([len(rows[i]) + 1 for i in chosen], self._tokens_per_batch):
            yield [chosen[place] for place in batch]

    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Of every token of given translations, </s> included; both sides come without it."""
        names = list(self._target)
        return self._scored(sources, [[names[token] for token in ids] for ids in targets])

    def _scored(
        self, rows: Sequence[list[int]], targets: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """`log_probs` of translations in the engine's words."""
        longest = [max(map(len, pair)) + 1 for pair in zip(rows, targets, strict=True)]
        pending = dict[int, Any]()
        for batch in by_length(longest, self._tokens_per_batch):
            found = self._translator.score_batch(
                [[self._source[token] for token in rows[i]] for i in batch],
                [targets[i] for i in batch],
                max_input_length=0,  # else 1024
                asynchronous=True,
            )
            pending.update(zip(batch, found, strict=True))
        return [list(pending[i].result().log_probs) for i in range(len(rows))]

    def _ranked(
        self, rows: list[list[int]], found: list[Any], limits: list[int]
    ) -> list[list[Hypothesis]]:
        """The n best of each row. What meets its limit is scored anew: </s> counts there too."""
        cut = [
            (row, pieces[:limit])
            for row, result, limit in zip(rows, found, limits, strict=True)
            for pieces in result.hypotheses
            if len(pieces) >= limit
        ]
        sums = map(math.fsum, self._scored([row for row, _ in cut], [pieces for _, pieces in cut]))
        hypotheses = [
            [
                self._hypothesis(pieces, self._log_prob(pieces, score), finished=True)
                if len(pieces) < limit
                else self._hypothesis(pieces[:limit], next(sums), finished=False)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result, limit in zip(found, limits, strict=True)
        ]
        return [
            sorted(some, key=lambda one: one.score, reverse=True)[: self._settings.n_best]
            for some in hypotheses
        ]

    def _log_prob(self, pieces: Sequence[str], score: float) -> float:
        """What the engine has divided by a power of the length, </s> included."""
        return float(score * (len(pieces) + 1) ** self._exponent)

    def _hypothesis(self, pieces: Sequence[str], log_prob: float, *, finished: bool) -> Hypothesis:
        penalty = PENALTIES[self._settings.length_penalty]
        return Hypothesis(
            tokens=tuple(self._target[piece] for piece in pieces),
            score=log_prob / penalty(len(pieces) + 1, self._settings.alpha),
            log_prob=log_prob,
            token_log_probs=(),
            alignment=None,
            finished=finished,
        )


def check_origin(folder: Path, weights_sha256: str, run: str, *, named: Path | None = None) -> None:
    """Whether an export is there, whole, and was made of these very weights.

    Those of before export.json held sums are not known to be whole.

    Args:
        named: what it is called in messages, where it is set aside just now.

    Raises:
        UserError: it is missing, damaged, or of other weights.
    """
    named = named or folder
    remedy = exporting(named, run)
    try:
        origin = json.loads((folder / MANIFEST).read_bytes())
        made_of, sums = origin["weights_sha256"], dict(origin.get("sha256", {}))
        remedy = exporting(named, run, origin.get("quantization"))
    except OSError as error:
        raise UserError(
            f"{named / MANIFEST} cannot be read ({error.strerror}): {remedy}"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named / MANIFEST} is damaged: {remedy}") from error
    if not (folder / "model.bin").is_file():  # graphs have the same manifest
        raise UserError(f"{named} is not an export for CTranslate2: {remedy}")
    if made_of != weights_sha256:
        raise UserError(
            f"{named} was made from other weights than those of {run}: give the run= that it was "
            f"made from, or replace it by {remedy}"
        )
    found = {path.name: file_hash(path) for path in folder.iterdir() if path.name in sums}
    for name in sums:
        if found.get(name) != sums[name]:
            raise UserError(
                f"{named / name} is damaged: it does not match its SHA-256 in {MANIFEST}: {remedy}"
            )


def exporting(folder: Path, run: str, quantization: object = None) -> str:
    """The command that writes an export anew."""
    kept = [f"quantization={quantization}"] if quantization else []
    return shlex.join(
        ["translate", "export", f"run={run}", "to=ctranslate2", *kept, f"output={folder}"]
    )
