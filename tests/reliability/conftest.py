"""Faults on constraint, and a tiny model to suffer them."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import RNN
from small_translators import learned

from translate.data.tokenizer import Tokenizers
from translate.inference import bundle
from translate.models import registry
from translate.models.seq2seq import Seq2Seq

WORDS = ["der", "Hund", "schläft", "die", "Katze", "frisst", "the", "dog", "sleeps", "cat", "eats"]
MODEL = RNN | {
    "cell": "gru", "embedding_size": 8, "hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1,
    "attention_size": 8, "tied_embeddings": "all",
}  # fmt: skip
SEARCH = {"kind": "greedy", "max_length_ratio": 0.1, "max_length_offset": 3}


def tiny_model(tokenizers: Tokenizers, *, bias: float = 0.0) -> Seq2Seq:
    """A recurrent model, told apart by its output's bias."""
    torch.manual_seed(7)
    model = registry.build(
        MODEL, source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    )
    with torch.no_grad():
        model.output.bias.fill_(bias)
    return model


def save_bundle(folder: Path, model: Seq2Seq, tokenizers: Tokenizers) -> None:
    bundle.save(
        folder, node=MODEL,
        model=model, tokenizers=tokenizers, languages=("de", "en"), search=SEARCH, extra={},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tokenizers() -> Tokenizers:
    texts = [f"{a} {b} {c}." for a in WORDS for b in WORDS for c in WORDS]
    joint = learned(texts, vocab_size=320, byte_fallback=True)
    return Tokenizers(joint, joint)


@pytest.fixture
def saved(tmp_path: Path, tokenizers: Tokenizers) -> Path:
    """The folder of a run with a tiny bundle."""
    save_bundle(tmp_path / "run" / "bundle", tiny_model(tokenizers), tokenizers)
    return tmp_path / "run"


class Calls:
    """Counts the calls to the file system in a block and lets a fault strike at one of them.

    Python's audit events tell of every file opened, renamed or removed, whoever does it; writes
    and syncs have none and are counted by stand-ins.
    """

    EVENTS = frozenset({
        "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.scandir", "os.listdir",
        "os.truncate", "os.link",
    })  # fmt: skip
    active: Calls | None = None

    def __init__(self, strike: Callable[[], None], first: int, last: float) -> None:
        self.strike, self.first, self.last = strike, first, last
        self.names: list[str] = []

    def call(self, name: str) -> None:
        self.names.append(name)
        if self.first <= len(self.names) <= self.last:
            self.strike()

    @staticmethod
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        calls = Calls.active
        if calls is not None and event in Calls.EVENTS:
            Calls.active = None  # a strike may itself open files
            try:
                calls.call(event)
            finally:
                Calls.active = calls


class Watched:
    """A file whose writes and flushes are counted."""

    def __init__(self, file: Any, calls: Calls) -> None:
        self._file, self._calls = file, calls

    def write(self, content: bytes) -> int:
        self._calls.call("write")
        return int(self._file.write(content))

    def flush(self) -> None:
        self._calls.call("flush")
        self._file.flush()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


sys.addaudithook(Calls.audit)


@contextmanager
def watching(strike: Callable[[], None], first: int, last: float) -> Iterator[Calls]:
    """Strike at the calls from number `first` to number `last` of the block."""
    calls = Calls(strike, first, last)
    opening, syncing = io.open, os.fsync

    def watched_open(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        opened = opening(file, mode, *rest, **options)
        return Watched(opened, calls) if "w" in mode else opened

    def watched_sync(handle: int) -> None:
        calls.call("fsync")
        syncing(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "open", watched_open)
        patch.setattr(os, "fsync", watched_sync)
        Calls.active = calls
        try:
            yield calls
        finally:
            Calls.active = None


def die() -> None:
    """What no handler catches."""
    os.kill(os.getpid(), signal.SIGKILL)


FIGURES = Path(os.environ.get("SOAK_FIGURES", os.devnull))


@pytest.fixture(scope="session")
def figures() -> Callable[..., None]:
    """`figures(what, number, of)`: a line for whoever runs `make soak`."""

    def record(what: str, *numbers: float) -> None:
        line = f"{what}: {' of '.join(f'{number:,}' for number in numbers)}"
        print(line)  # noqa: T201  # shown by pytest -s and with a failure
        with FIGURES.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    return record


@pytest.fixture(scope="session")
def faults() -> Any:
    """The tools above, for tests that cannot import them."""
    from types import SimpleNamespace

    return SimpleNamespace(
        watching=watching, die=die, tiny_model=tiny_model, save_bundle=save_bundle
    )
