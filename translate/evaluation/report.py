"""What an evaluation leaves in a run: `evaluation/<split>.json` and `evaluation/<split>.hyp`."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from translate.errors import UserError
from translate.evaluation import buckets
from translate.evaluation.buckets import Bucket
from translate.evaluation.metrics import Scores

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Report:
    """One split, translated and scored, with what it takes to believe and repeat the figures."""

    split: str
    scores: Scores
    buckets: Sequence[Bucket]
    items: int
    references: int  # of all items together
    empty_hypotheses: int
    seconds: float  # wall time of translating alone: no loading, no scoring
    decoding: Mapping[str, object]  # the search settings, as configured
    command: str
    model_sha256: str
    sources_sha256: str  # see `fingerprint`
    references_sha256: str  # see `fingerprint`
    hypotheses_sha256: str  # of the .hyp file

    @property
    def sentences_per_second(self) -> float:
        """Sentences translated in a second of wall time."""
        return self.items / self.seconds if self.seconds else float(self.items)

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON, the scores first."""
        return {
            "split": self.split,
            **self.scores.as_dict(),
            "items": self.items,
            "references": self.references,
            "empty_hypotheses": self.empty_hypotheses,
            "buckets": [bucket.as_dict() for bucket in self.buckets],
            "seconds": round(self.seconds, 3),
            "sentences_per_second": round(self.sentences_per_second, 2),
            "decoding": dict(self.decoding),
            "command": self.command,
            "sha256": {
                "model": self.model_sha256,
                "sources": self.sources_sha256,
                "references": self.references_sha256,
                "hypotheses": self.hypotheses_sha256,
            },
        }


def write(report: Report, hypotheses: Sequence[str], folder: Path) -> None:
    """Write `<split>.hyp`, then `<split>.json`: a reader finds old files or new, never half of one.

    The JSON comes last and names the hash of the hypotheses, so that a kill between the two shows.

    Raises:
        UserError: the folder cannot be written to.
    """
    # encoded before anything is replaced: an unserialisable setting must not cost the old report
    described = json.dumps(report.as_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    contents = {
        f"{report.split}.hyp": as_lines(hypotheses),
        # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON does
        f"{report.split}.json": described.encode(errors="backslashreplace"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            _replace(folder / name, content)
    except OSError as error:
        raise UserError(
            f"cannot write the evaluation to {folder}: {error.strerror or error}; "
            "free space or choose a folder that may be written to"
        ) from error


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


def render(report: Report) -> Group:
    """Scores, buckets and speed as a rich renderable for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    scores = Table(title=f"{report.split}: {report.items:,} items", title_justify="left")
    scores.add_column("metric", no_wrap=True)
    scores.add_column("score", justify="right", no_wrap=True, style="bold")
    scores.add_column("signature", overflow="fold", style="dim")
    for name, score in (
        ("BLEU", report.scores.bleu),
        ("chrF", report.scores.chrf),
        ("TER ↓", report.scores.ter),
    ):
        scores.add_row(name, f"{score.score:.2f}", score.signature)
    speed = f"{report.seconds:.1f} s, {report.sentences_per_second:.1f} sentences/s"
    empty = f", {report.empty_hypotheses:,} empty" if report.empty_hypotheses else ""
    return Group(scores, buckets.table(report.buckets), Text(speed + empty))


def _replace(path: Path, content: bytes) -> None:
    """Put a whole file in place of the old one, durably (temporary beside it, fsync, rename)."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp makes files that only their owner may read
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
