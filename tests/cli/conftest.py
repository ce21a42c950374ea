"""The program, called in this process; and one tiny trained run for all commands."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

TINY = [
    "data=toy", "data.train=300", "data.dev=8", "data.test=8", "data.workers=0",
    "tokenizer.vocab_size=500", "model.d_model=16", "model.d_ff=16", "model.num_heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "search.beam_size=2",
    "search.max_length_ratio=0.0", "search.max_length_offset=5", "trainer.max_steps=2",
    "trainer.validate_every=2", "trainer.validation_sentences=2", "trainer.samples=0",
    "trainer.accelerator=cpu", "trainer.precision=32-true",
]  # fmt: skip


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


Program = Callable[..., Done]


@contextmanager
def own_logging() -> Iterator[None]:
    """Commands send all logging to their stderr, which ends with them."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    with own_logging():
        yield


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of training look at them, which take a third of a run of few steps."""
    monkeypatch.setattr("translate.extras.figures.learning_curves", lambda *_: None)


@pytest.fixture
def program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """`translate …` in an empty folder; `stdin` is what a pipe would bring."""
    from translate.cli.main import main

    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(sys, "argv", ["translate", *arguments])
        capsys.readouterr()
        status = main()
        return Done(status, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tiny run was trained; its corpora are cached in `data`."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def trained(home: Path) -> Path:
    """A finished run, in a folder whose name would break Hydra's grammar."""
    from translate.cli.main import main

    run, out, err = home / "é, =${x} 'run'", io.StringIO(), io.StringIO()
    with own_logging(), redirect_stdout(out), redirect_stderr(err):
        status = main(["train", *TINY, f"cache={home}/data", f"run={run}"])
    assert status == 0, err.getvalue()
    assert out.getvalue() == ""
    return run


@pytest.fixture
def run(trained: Path) -> str:
    """The argument that names the run."""
    return f"run={trained}"
