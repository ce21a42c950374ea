"""The report of an evaluation, and its files in `evaluation/` of a run.

<split>.hyp              the translations, a line each
<split>.sentences.jsonl  an object a sentence: texts and scores
<split>.html             the report as a page
<split>.json             the figures, and the hash of the translations
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from translate.errors import UserError
from translate.evaluation.breakdown import Bucket, Slice
from translate.evaluation.metrics import Interval, Scores, SentenceScores
from translate.files import read_plain, write

LARGEST = 1 << 30  # bytes of a file of an evaluation


@dataclass(frozen=True)
class PeakMemory:
    """The most memory that was held at one time so far, in MiB."""

    process: float  # the largest, where workers translated
    gpu: float | None  # of PyTorch's tensors; None without a GPU


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
        """Read what `as_dict` wrote; an older version counted less."""
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


def perplexity(log_prob: float, tokens: int) -> float:
    """exp(-log P / tokens): how many pieces the model wavers between, on average."""
    try:
        return math.exp(-log_prob / tokens)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Comet:
    """One COMET model's scores of a translated corpus; by most, 0 is bad and 1 perfect."""

    sentences: Sequence[float]
    model: str  # the name of its folder
    sha256: str  # of its checkpoint
    references: int  # of each sentence that it saw: 1, the first, or 0 for quality estimation
    version: str  # of unbabel-comet

    @cached_property
    def score(self) -> float:
        """The mean score of the sentences."""
        return fmean(self.sentences)

    @property
    def half_width(self) -> float:
        """Half the width of that mean's 95 % interval: 1.96 σ/√n, as from resampling sentences."""
        return 1.96 * pstdev(self.sentences) / math.sqrt(len(self.sentences))

    @property
    def signature(self) -> str:
        """The model and versions that repeat the score, in sacreBLEU's manner."""
        return (
            f"nrefs:{self.references}|model:{self.model}|sha256:{self.sha256[:12]}"
            f"|version:{self.version}"
        )

    def as_dict(self) -> dict[str, float | int | str]:
        """Plain values for JSON."""
        return {
            "score": self.score,
            "half_width": self.half_width,
            "signature": self.signature,
            "model": self.model,
            "sha256": self.sha256,
        }


@dataclass(frozen=True)
class ModifiedScore:
    """BLEU of the sentences that a modifier changes, as they were and changed."""

    modifier: str
    items: int
    plain: float
    modified: float


@dataclass(frozen=True)
class Report:
    """One split, translated and scored, with the facts that make the figures repeatable."""

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
    memory: PeakMemory
    decoding: Mapping[str, object]  # the search settings, as configured
    command: str
    model_sha256: str
    sources_sha256: str  # see `fingerprint`
    references_sha256: str  # see `fingerprint`
    hypotheses_sha256: str  # of the .hyp file
    read_sha256: Mapping[str, str]  # of what else it was made with, by the key that names it
    modified: Sequence[ModifiedScore] = ()  # where modifiers were asked for

    @property
    def sentences_per_second(self) -> float:
        """Sentences translated in a second of wall time."""
        return self.items / self.seconds if self.seconds else float(self.items)

    @property
    def likelihood_of(self) -> str | None:
        """The owner of the likelihood; another engine than ours scores no texts."""
        engine = self.decoding.get("engine", "native")
        return None if engine == "native" else f"the original model, not of {engine}"

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON, the scores first."""
        of = {} if self.likelihood_of is None else {"of": self.likelihood_of}
        return {
            "split": self.split,
            **asdict(self.scores),
            "confidence": {name: asdict(each) for name, each in self.confidence.items()},
            **({} if self.comet is None else {"comet": self.comet.as_dict()}),
            "likelihood": None if self.likelihood is None else self.likelihood.as_dict() | of,
            "tokenize": self.tokenize,
            "items": self.items,
            "references": self.references,
            "empty_hypotheses": self.empty_hypotheses,
            "buckets": [asdict(bucket) for bucket in self.buckets],
            "rarest_word": [asdict(part) for part in self.rarity],
            "domains": [asdict(part) for part in self.domains],
            **({"modified": [asdict(each) for each in self.modified]} if self.modified else {}),
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
    """Write `<split>.hyp` at once, so that no fault in scoring can lose the translations.

    Until `write_figures` has followed, an older JSON does not vouch for it: `read` raises.

    Raises:
        UserError: the folder cannot be written to.
    """
    write(folder / f"{split}.hyp", as_lines(hypotheses))


def write_figures(report: Report, folder: Path, further: Mapping[str, bytes]) -> None:
    """Write `<split>.json`, which names the hash of the hypotheses written before.

    `further` holds files that come first, ending → content.

    Raises:
        UserError: the folder cannot be written to.
    """
    # encoded before anything is replaced: an unserialisable setting must not cost the old report
    described = json.dumps(report.as_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    for ending, content in further.items():
        write(folder / f"{report.split}.{ending}", content)
    # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
    write(folder / f"{report.split}.json", described.encode(errors="backslashreplace"))


def name_in(
    folder: Path, name: str, *, sources_sha256: str, references_sha256: str, holds_name: bool
) -> str:
    """The name of these sentences' evaluation in a folder: `name`, unless others have it there.

    If the name is not theirs (`holds_name`), they have it only if they had it before.
    """
    ours = [sources_sha256, references_sha256]
    try:
        hashes = json.loads(_stored(folder / f"{name}.json"))["sha256"]
        theirs = [hashes["sources"], hashes["references"]]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: nothing to keep
        theirs = ours if holds_name else []
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
        figures = json.loads(_stored(described))
        lines = _stored(translated)
        vouched = figures["sha256"]["hypotheses"]
        known = figures["likelihood"]
        stored = Stored(
            hypotheses=lines.decode("utf-8", "replace").split("\n")[:-1],
            decoding=figures["decoding"],
            tokenize=figures["tokenize"],
            likelihood=None if known is None else Likelihood.from_dict(known),
            figures=figures,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not described.exists():
            return None
        raise UserError(f"{described} cannot be read ({error!r}): {again}") from error
    if digest(lines) != vouched:
        raise UserError(f"{translated} does not match the SHA-256 in {described.name}: {again}")
    return stored


def _stored(path: Path) -> bytes:
    return read_plain(path, largest=LARGEST)


def as_lines(sentences: Sequence[str]) -> bytes:
    r"""Encode a line a sentence in UTF-8, ended by \n."""
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def fingerprint(items: Sequence[object]) -> str:
    r"""SHA-256 of the items as ASCII JSON lines, which tell `["a", "b"]` from `["a\nb"]`."""
    return digest("".join(f"{json.dumps(item)}\n" for item in items).encode("ascii"))
