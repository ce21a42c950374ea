"""The program as a whole: finding commands, help, and how failures end."""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from translate import __main__ as entry
from translate.cli.arguments import Job, split
from translate.cli.composing import launch
from translate.cli.main import COMMANDS, StoppedError, main
from translate.data.corpus import check_data
from translate.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def test_help_names_every_command(program) -> None:
    done = program("--help")
    assert done.status == 0
    for name, command in COMMANDS.items():
        assert f"  {name}" in done.out
        assert command.summary in done.out
    assert program().status == 2
    assert program("--version").out.startswith("translate 0.")


def listed(key: str, text: str) -> bool:
    """Whether a help names a key, which is more than a word that has its letters."""
    return re.search(rf"(  |, ){key}\b|\b{key}[.:=]", text) is not None


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_every_command_explains_itself(program, command) -> None:
    done = program(command.name, "--help")
    assert done.status == 0
    assert done.err == ""
    assert f"  translate {command.name}" in done.out  # an example
    assert ("Hydra composes the configuration" in done.out) == command.composed
    assert max(map(len, done.out.splitlines())) <= 100
    for key, field in command.options.fields().items():
        assert field.description is None or listed(key, done.out), key


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = re.findall(
    r"^ +translate ((?:prepare|doctor)\b[^#…\\\n]*)$",
    "\n".join(
        [command.options.usage for command in COMMANDS.values()]
        + [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    ),
    re.MULTILINE,
)


@pytest.mark.parametrize("line", sorted(set(EXAMPLES)))
def test_every_corpus_of_the_help_and_the_documents_is_valid(line: str) -> None:
    name, *arguments = shlex.split(line)
    jobs: list[Job] = []
    launch(COMMANDS[name], split(COMMANDS[name].syntax(), arguments), jobs.append)
    assert check_data(jobs[0].config["data"]) == []


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = {*sys.modules}; from translate.cli.main import main; "
        "main(['--help']); heavy = {'torch', 'hydra', 'pydantic', 'lightning', "
        "'importlib.metadata'}; print([*heavy & {*sys.modules} - before])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_interrupt_while_the_program_is_imported_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "translate.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "translate.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert entry.main() == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("given", "meant"), [("trian", "train"), ("Text", "text"), ("eval", None)])
def test_an_unknown_command_names_the_nearest(program, given, meant) -> None:
    done = program(given)
    assert done.status == 2
    assert done.out == ""
    assert f"unknown command '{given}'" in done.err
    if meant:
        assert f"did you mean {meant}?" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("mend this"), 1, "translate: error: mend this\n"),
        (
            FileNotFoundError(2, "No such file", "x.txt"),
            1,
            "translate: error: x.txt: No such file\n",
        ),
        (
            StoppedError(signal.SIGINT),
            130,
            "translate: stopped by SIGINT; to go on or start again, give the same command\n",
        ),
        (BrokenPipeError(), 141, ""),
        (
            ZeroDivisionError("two\nlines"),
            1,
            "translate: error: ZeroDivisionError: two lines; "
            "run again with debug=true for the traceback\n",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_one_line_and_a_status(program, monkeypatch, error, status, line) -> None:
    def fail(job: object) -> None:
        raise error

    monkeypatch.setattr("translate.cli.models.run", fail)
    done = program("models")
    assert (done.status, done.out, done.err) == (status, "", line)


def test_what_a_stranger_named_moves_no_terminal(program, monkeypatch) -> None:
    def fail(job: object) -> None:
        logging.getLogger("translate.cli").warning("%s is odd:\n\ttwice", "\x1b[2Jrun")
        raise UserError("\x1b]0;mine\x07 is missing\n  in two lines")

    monkeypatch.setattr("translate.cli.models.run", fail)
    assert program("models").err == (
        "\\x1b[2Jrun is odd:\n\ttwice\n"
        "translate: error: \\x1b]0;mine\\x07 is missing\n  in two lines\n"
    )


def test_a_traceback_only_when_asked_for(program, monkeypatch) -> None:
    def fail(job: object) -> None:
        raise UserError("mend this")

    monkeypatch.setattr("translate.cli.models.run", fail)
    assert "Traceback" not in program("models").err
    shown = program("models", "debug=true").err
    assert "Traceback" in shown
    assert shown.endswith("translate: error: mend this\n")


def start(*arguments: str, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "translate", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("command", ["models", "train -c job"])
def test_a_reader_that_leaves_ends_it_quietly(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = start(*command.split(), stdout=writer)
        assert done.communicate()[1] == b""
        assert done.returncode == 141
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
def test_a_full_disk_under_stdout_is_a_line() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        done = start("models", stdout=full.fileno())
        assert done.communicate()[1] == b"translate: error: output: No space left on device\n"
    assert done.returncode == 1


def test_an_encoding_that_lacks_a_sign_has_a_question_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["text", "--help"]) == 0
    assert b"?D?nde est?" in written.getvalue()


def test_processes_of_a_training_after_the_first_tell_only_warnings(
    program, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("translate")
    for place in ("train.main", "models.run"):
        monkeypatch.setattr(f"translate.cli.{place}", lambda *_: [log.info("a"), log.warning("b")])
    assert program("train").err == "a\nb\n"
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert program("train").err == "b\n"
    assert program("models").err == "a\nb\n", "not of a training"
