"""How a process ends that is told to: nothing half-written, and the status that shells expect."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import ended, forked

from translate.cli.main import main

PREPARE = [
    "prepare", "data=toy", "data.train=50", "data.dev=5", "data.test=5", "tokenizer.vocab_size=400",
    "cache=cache",
]  # fmt: skip


def status_of(arguments: list[str], prepared: Callable[[], None], said: Path) -> int:
    """The exit status of the program in a child, after it was prepared for its fate."""

    def program() -> int:
        prepared()
        return main(arguments)

    with said.open("w") as file:
        return ended(forked(program, file.fileno()))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_signal_while_preparing_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, command: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), number)

    def prepared() -> None:
        monkeypatch.setattr("translate.data.corpus.account", interrupted)

    assert status_of([command, *PREPARE[1:]], prepared, tmp_path / "said") == status
    last = (tmp_path / "said").read_text().splitlines()[-1]
    name = signal.Signals(number).name
    assert last == f"translate: stopped by {name}; to go on or start again, give the same command"
    left = [path.name for path in (tmp_path / "cache" / "corpora").iterdir()]
    assert all(name.endswith(".lock") for name in left)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(PREPARE) == 0  # and the next finds its way


@pytest.mark.parametrize("options", [[], ["workers=2", "tokens_per_batch=512"]], ids=str)
def test_a_reader_that_leaves_ends_a_translation_quietly(
    saved: Path, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "in").write_text("der Hund schläft\n" * 3_000)
    reader, writer = os.pipe()
    os.close(reader)

    def prepared() -> None:
        os.dup2(writer, 1)
        sys.stdout = os.fdopen(1, "w")

    arguments = [
        "text",
        f"run={saved}",
        f"input={tmp_path}/in",
        "device=cpu",
        "guard=none",
        *options,
    ]
    assert status_of(arguments, prepared, tmp_path / "said") == 141
    os.close(writer)
    assert (tmp_path / "said").read_text() == ""
