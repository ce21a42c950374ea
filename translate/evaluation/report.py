"""What an evaluation leaves in a run, in `evaluation/`.

<split>.hyp              the translations, a line each
<split>.sentences.jsonl  an object a sentence: texts and scores
<split>.html             the report to look at (`report_page`)
<split>.json             the figures, and the hash of the translations
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from translate.errors import UserError
from translate.evaluation.buckets import Bucket
from translate.evaluation.comet import Comet
from translate.evaluation.likelihood import Likelihood
from translate.evaluation.metrics import Scores
from translate.evaluation.sentences import SentenceScores
from translate.evaluation.significance import Interval
from translate.evaluation.slices import Slice
from translate.files import replacing


@dataclass(frozen=True)
class Memory:
    """The most memory that was held at one time so far, in MiB."""

    process: float  # the largest, where workers translated
    gpu: float | None  # of PyTorch's tensors; None without a GPU


@dataclass(frozen=True)
class Report:
    """One split, translated and scored, with what it takes to believe and repeat the figures."""

    split: str
    tokenize: str  # BLEU's tokeniser
    scores: Scores
    confidence: Mapping[str, Interval]  # by metric
    comet: Comet | None  # where a model was given
    likelihood: Likelihood | None  # None where the model can read no pair
    buckets: Sequence[Bucket]
    rarity: Sequence[Slice]  # by the rarest source word's count in training; empty if unknown
    domains: Sequence[Slice]  # empty where none are known
    sentences: Sequence[SentenceScores]
    items: int
    references: int  # of all items together
    empty_hypotheses: int
    seconds: float  # wall time of translating alone: no loading, no scoring
    memory: Memory
    decoding: Mapping[str, object]  # the search settings, as configured
    command: str
    model_sha256: str
    sources_sha256: str  # see `fingerprint`
    references_sha256: str  # see `fingerprint`
    hypotheses_sha256: str  # of the .hyp file
    read_sha256: Mapping[str, str]  # of what else it was made with, by the key that names it

    @property
    def sentences_per_second(self) -> float:
        """Sentences translated in a second of wall time."""
        return self.items / self.seconds if self.seconds else float(self.items)

    @property
    def likelihood_of(self) -> str | None:
        """Whose likelihood it is where another engine translated: none but our own scores texts."""
        engine = self.decoding.get("engine", "native")
        return None if engine == "native" else f"the original model, not of {engine}"

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON, the scores first."""
        of = {} if self.likelihood_of is None else {"of": self.likelihood_of}
        return {
            "split": self.split,
            **asdict(self.scores),
            "confidence": {name: asdict(found) for name, found in self.confidence.items()},
            **({} if self.comet is None else {"comet": self.comet.as_dict()}),
            "likelihood": None if self.likelihood is None else self.likelihood.as_dict() | of,
            "tokenize": self.tokenize,
            "items": self.items,
            "references": self.references,
            "empty_hypotheses": self.empty_hypotheses,
            "buckets": [asdict(bucket) for bucket in self.buckets],
            "rarest_word": [asdict(part) for part in self.rarity],
            "domains": [asdict(part) for part in self.domains],
            "seconds": round(self.seconds, 3),
            "sentences_per_second": round(self.sentences_per_second, 2),
            "peak_memory_mib": asdict(self.memory),
            "decoding": dict(self.decoding),
            "command": self.command,
            "sha256": {
                "model": self.model_sha256,
                "sources": self.sources_sha256,
                "references": self.references_sha256,
                "hypotheses": self.hypotheses_sha256,
                **self.read_sha256,
            },
        }


def write_hypotheses(split: str, hypotheses: Sequence[str], folder: Path) -> None:
    """Write `<split>.hyp`, which no fault in judging it can then lose.

    Until `write` has followed, an older JSON does not vouch for it, and a reader is told so.

    Raises:
        UserError: the folder cannot be written to.
    """
    _write(folder, {f"{split}.hyp": as_lines(hypotheses)})


def write(
    report: Report, folder: Path, further: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write `<split>.json`, which names the hash of the hypotheses written before.

    `further` holds files that come first, ending → content. A reader finds old files or new, never
    half of one.

    Raises:
        UserError: the folder cannot be written to.
    """
    # encoded before anything is replaced: an unserialisable setting must not cost the old report
    described = json.dumps(report.as_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    _write(
        folder,
        {
            **{f"{report.split}.{ending}": content for ending, content in further.items()},
            # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
            f"{report.split}.json": described.encode(errors="backslashreplace"),
        },
    )


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with replacing(folder / name) as file:
                file.write(content)
    except OSError as error:
        raise UserError(
            f"cannot write the evaluation to {folder}: {error.strerror or error}; "
            "free space or choose a folder that may be written to"
        ) from error


def name_in(
    folder: Path, name: str, *, sources_sha256: str, references_sha256: str, own: bool
) -> str:
    """The name of these sentences' evaluation in a folder: `name`, unless others have it there.

    If the name is not their `own`, they have it only if they had it before.
    """
    ours = [sources_sha256, references_sha256]
    try:
        hashes = json.loads((folder / f"{name}.json").read_bytes())["sha256"]
        theirs = [hashes["sources"], hashes["references"]]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: nothing to keep
        theirs = ours if own else []
    return name if theirs == ours else f"{name}-{digest(''.join(ours).encode())[:6]}"


@dataclass(frozen=True)
class Stored:
    """An evaluation read back: translations, and the figures that later commands need."""

    hypotheses: list[str]
    decoding: Mapping[str, Any]
    tokenize: str
    likelihood: Likelihood | None
    figures: Mapping[str, Any]  # all of the JSON


def read(folder: Path, split: str) -> Stored | None:
    """The evaluation that `write` left; None where there is none.

    Raises:
        UserError: one of the two files is missing, cannot be read, or is not of the other.
    """
    described, translated = folder / f"{split}.json", folder / f"{split}.hyp"
    again = f"evaluate it again (or remove {described})"
    try:
        figures = json.loads(described.read_bytes())
        lines = translated.read_bytes()
        vouched = figures["sha256"]["hypotheses"]
        known = figures["likelihood"]
        _check(figures["decoding"], known)
        stored = Stored(
            hypotheses=lines.decode("utf-8", "replace").split("\n")[:-1],
            decoding=figures["decoding"],
            tokenize=figures["tokenize"],
            likelihood=None if known is None else Likelihood.from_dict(known),
            figures=figures,
        )
    except FileNotFoundError:
        if not described.exists():
            return None
        raise UserError(f"{translated} is missing beside {described.name}: {again}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{described} cannot be read ({error!r}): {again}") from error
    if digest(lines) != vouched:
        raise UserError(f"{translated} does not match the SHA-256 in {described.name}: {again}")
    return stored


def _check(decoding: object, likelihood: Mapping[str, Any] | None) -> None:
    """What later commands reckon with, as far as a missing key does not tell.

    Raises:
        TypeError: it is of another kind.
    """
    if not isinstance(decoding, dict):
        raise TypeError(f"decoding is {decoding!r}")
    if likelihood is None:
        return
    if not isinstance(likelihood["log_prob"], int | float):
        raise TypeError(f"log_prob is {likelihood['log_prob']!r}")
    for key in ("tokens", "characters"):
        if not isinstance(likelihood[key], int) or likelihood[key] < 1:
            raise TypeError(f"{key} is {likelihood[key]!r}")


def as_lines(sentences: Sequence[str]) -> bytes:
    r"""A line a sentence in UTF-8, ended by \n.

    Raises:
        ValueError: a sentence with a newline, which would shift all lines after it.
    """
    for number, sentence in enumerate(sentences, start=1):
        if "\n" in sentence:
            raise ValueError(f"sentence {number} contains a newline: {sentence!r}")
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def fingerprint(items: Sequence[object]) -> str:
    r"""SHA-256 of the items as ASCII JSON lines, which tell `["a", "b"]` from `["a\nb"]`."""
    return digest("".join(f"{json.dumps(item)}\n" for item in items).encode("ascii"))
