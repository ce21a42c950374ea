"""Search by CTranslate2, over weights that `translate export` has written in its format."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from translate.data.tokenizer import Tokenizers
from translate.errors import UserError, first_line
from translate.extras.ctranslate2_export import POSITIONS, imported, vocabulary
from translate.extras.parity import LARGEST_MANIFEST, MANIFEST
from translate.files import file_hash, read_plain
from translate.inference.batches import by_length
from translate.inference.bundle import Bundle
from translate.machine import threads_restored
from translate.models.seq2seq import Seq2Seq
from translate.search import Hypothesis
from translate.search.constraints import (
    NO_RULES,
    Constraint,
    Constraints,
    RulesConfig,
    length_limits,
)
from translate.search.scoring import PENALTIES, LengthPenalty

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 16384}  # with more a CPU is slower


@dataclass(frozen=True)
class EngineSettings:
    """The keys of conf/search that CTranslate2 carries; greedy search is a beam of one."""

    max_length_ratio: float
    max_length_offset: int
    beam_size: int = 1
    length_penalty: LengthPenalty = "none"
    alpha: float = 0.0
    n_best: int = 1


CARRIED = {field.name for field in fields(EngineSettings)}


def search_problems(search: Mapping[str, Any]) -> list[str]:
    """List why CTranslate2 cannot search like that, one line each. `search` is valid otherwise."""
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


def problems(
    config: Mapping[str, Any], verbatim: Mapping[str, str], *, lacking: Iterable[str]
) -> list[str]:
    """List the options of a valid configuration that this engine lacks, one line each.

    `lacking` are keys of files and texts that it has no option for.
    """
    lines = search_problems(config["search"])
    if config["precision"]:
        lines.append(
            f"precision = {config['precision']} only applies to engine=native; the precision of "
            "an export was set by translate export quantization="
        )
    for key in lacking:
        if verbatim.get(key):
            lines.append(f"{key} = {verbatim[key]}: engine=ctranslate2 has no such option")
    for key, needing in (("replace_unknown", True), ("format", "json")):
        if config.get(key) == needing:
            shown = str(needing).lower()
            lines.append(f"{key} = {shown} needs attention, which engine=ctranslate2 has not")
    return lines


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

    whole_windows = True  # it cuts windows into batches itself

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
        self._settings = EngineSettings(**{key: search[key] for key in CARRIED & search.keys()})
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
                str(folder),
                device=place.type,
                device_index=place.index or 0,
                inter_threads=(workers or cores) if place.type == "cpu" else 1,
                intra_threads=cores if workers == 1 else 1,
                max_queued_batches=-1,
            )

    @property
    def compute_type(self) -> str:
        """The type of number it computes with: that of the export, or another of this processor."""
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
        """Return the best tokens for each source, cut at its limit; both sides without </s>."""
        return [best.tokens for best, *_ in self._search(sources, limits)]

    def _search(self, rows: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        results = self._translated(rows, limits, [range(len(rows))])
        # the longest limit of a batch holds: what meets its own is translated beside its like,
        # but for greedy search, which begins in the same way under any limit
        if self._settings.beam_size > 1:
            met = [i for i, each in results.items() if max(map(len, each.hypotheses)) >= limits[i]]
            by_limit = groupby(sorted(met, key=limits.__getitem__), limits.__getitem__)
            results |= self._translated(rows, limits, [list(alike) for _, alike in by_limit])
        return self._ranked(rows, [results[i] for i in range(len(rows))], limits)

    def _translated(
        self, rows: list[list[int]], limits: list[int], groups: Sequence[Sequence[int]]
    ) -> dict[int, Any]:
        """Translate groups of rows, up to the longest limit of each batch."""
        settings, pending = self._settings, dict[int, Any]()
        for group in groups:
            for places in by_length([len(rows[i]) + 1 for i in group], self._tokens_per_batch):
                batch = [group[place] for place in places]
                results = self._translator.translate_batch(
                    [[self._source[token] for token in rows[i]] for i in batch],
                    beam_size=settings.beam_size,
                    # all that the beam finishes, for their ranks may change
                    num_hypotheses=settings.beam_size,
                    length_penalty=self._exponent,
                    min_decoding_length=0,
                    max_input_length=0,  # else 1,024
                    max_decoding_length=max(limits[i] for i in batch),
                    return_scores=True,
                    asynchronous=True,
                )
                pending.update(zip(batch, results, strict=True))
        return {i: each.result() for i, each in pending.items()}

    def log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Score every token of translations, </s> included; both sides come without it."""
        names = list(self._target)
        return self._scored(sources, [[names[token] for token in ids] for ids in targets])

    def _scored(
        self, rows: Sequence[list[int]], targets: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Return the `log_probs` of translations in the engine's words."""
        longest = [max(map(len, pair)) + 1 for pair in zip(rows, targets, strict=True)]
        pending = dict[int, Any]()
        for batch in by_length(longest, self._tokens_per_batch):
            results = self._translator.score_batch(
                [[self._source[token] for token in rows[i]] for i in batch],
                [targets[i] for i in batch],
                max_input_length=0,  # else 1024
                asynchronous=True,
            )
            pending.update(zip(batch, results, strict=True))
        return [list(pending[i].result().log_probs) for i in range(len(rows))]

    def _ranked(
        self, rows: list[list[int]], results: list[Any], limits: list[int]
    ) -> list[list[Hypothesis]]:
        """Return the n best of each row, those cut at the limit scored anew: </s> counts there."""
        cut = [
            (row, pieces[:limit])
            for row, result, limit in zip(rows, results, limits, strict=True)
            for pieces in result.hypotheses
            if len(pieces) >= limit
        ]
        sums = map(math.fsum, self._scored([row for row, _ in cut], [pieces for _, pieces in cut]))
        ranked = []
        for result, limit in zip(results, limits, strict=True):
            n_best = [
                # the engine has divided by a power of the length, </s> included
                self._hypothesis(pieces, score * (len(pieces) + 1) ** self._exponent, finished=True)
                if len(pieces) < limit
                else self._hypothesis(pieces[:limit], next(sums), finished=False)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            n_best.sort(key=lambda each: each.score, reverse=True)
            ranked.append(n_best[: self._settings.n_best])
        return ranked

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


def load(
    folder: Path,
    run: str,
    bundle: Bundle,
    search: Mapping[str, Any],
    *,
    tokens_per_batch: int | None,
    workers: int | None,
    device: torch.device,
) -> CTranslate2Search:
    """Return the search over the export of a run's bundle in this folder.

    Raises:
        UserError: it is missing, damaged, or of other weights.
    """
    check_origin(folder, bundle.weights_sha256, run)
    try:
        return CTranslate2Search(
            folder, bundle.tokenizers, search,
            tokens_per_batch=tokens_per_batch, workers=workers, device=device,
        )  # fmt: skip
    except RuntimeError as error:  # an export of before it had sums
        raise UserError(
            f"{folder} cannot be loaded ({first_line(error)}): {exporting(folder, run)}"
        ) from error


def check_origin(folder: Path, weights_sha256: str, run: str) -> None:
    """Check that an export is there, whole, and was made of these very weights.

    Exports from before export.json held sums are not known to be whole.

    Raises:
        UserError: it is missing, damaged, or of other weights.
    """
    remedy = exporting(folder, run)
    try:
        origin = json.loads(read_plain(folder / MANIFEST, largest=LARGEST_MANIFEST))
        made_of, sums = origin["weights_sha256"], dict(origin.get("sha256", {}))
        remedy = exporting(folder, run, origin.get("quantization"))
    except OSError as error:
        raise UserError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}): {remedy}"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / MANIFEST} is damaged: {remedy}") from error
    if not (folder / "model.bin").is_file():  # graphs have the same manifest
        raise UserError(f"{folder} is not an export for CTranslate2: {remedy}")
    if made_of != weights_sha256:
        raise UserError(
            f"{folder} was made from other weights than those of {run}: give the run= that it was "
            f"made from, or replace it by {remedy}"
        )
    for name, digest in sums.items():
        if not (folder / name).is_file() or file_hash(folder / name) != digest:
            raise UserError(
                f"{folder / name} is damaged: it does not match its SHA-256 in {MANIFEST}: {remedy}"
            )


def exporting(folder: Path, run: str, quantization: object = None) -> str:
    """Return the command that writes an export anew."""
    options = [f"quantization={quantization}"] if quantization else []
    return shlex.join(
        ["translate", "export", f"run={run}", "to=ctranslate2", *options, f"output={folder}"]
    )
