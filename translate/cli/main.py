"""The program `translate`: finds the command, runs it, turns a failure into an exit status."""

from __future__ import annotations

import difflib
import gc
import io
import logging
import os
import sys
from collections.abc import Sequence

import translate
from translate import machine
from translate.cli import arguments, errors
from translate.cli.arguments import whole_run
from translate.cli.commands import COMMANDS
from translate.compose import is_choice, key_of
from translate.training.launch import is_first_process
from translate.wording import escaped, nearest

HELP = """\
translate: neural machine translation with attention

Usage: translate COMMAND [KEY=VALUE ...] [SENTENCE ...]

{commands}

Train a model from scratch, and use it:
  translate train experiment=demo run=runs/demo
  translate evaluate run=runs/demo
  translate text run=runs/demo "¿Dónde está el tren?"
  translate attend run=runs/demo "¿Dónde está el tren?"

translate COMMAND --help says what a command does and which keys it has.
translate models lists what can be chosen: models, corpora, searches, ready experiments;
docs/configuration.md explains every key, with its default.
"""

COMMON_HELP = """
All commands:
  debug=true     show the traceback of an error
  --             all that follow are sentences, whatever they look like
Sentences, and the values of run=, input=, output= and the like, are taken literally: they need no
quoting beyond the shell's. Other values are YAML. Results go to standard output, everything else to
standard error. Exit status: 0 success, 1 failure, 2 wrong usage or configuration.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on `argv` (default: the process's own) and return its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    gc.disable()  # until a job begins: to search what is imported, and stays, took a tenth of that
    _settle_streams()
    if machine.cores() < (os.cpu_count() or 1):  # libraries ask how many there are, once
        os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    try:
        with errors.stopped_by_signals():
            status = _dispatch(given)
            sys.stdout.flush()  # here, where a closed pipe or a full disk can still be reported
    except (Exception, errors.StoppedError, errors.JobFailedError) as error:
        return errors.report(error, debug=arguments.wants_debug(given))
    finally:
        gc.enable()
    return status


def _settle_streams() -> None:
    """Streams may have been closed; an encoding that lacks a sign has a ? for it.

    A closed input (`<&-`) is empty, and messages to a closed standard error lead nowhere. Results
    do not: that output is opened for reading, so that whoever writes to it hears that it is closed.
    In the order of their numbers: what is opened takes the lowest that is free.
    """
    for name, mode, access in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, access), mode, encoding="utf-8"))
    refusing = ("strict", "surrogateescape")  # the second in the C locale
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in refusing:
        sys.stdout.reconfigure(errors="replace")


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP.format(commands=_table()))
        return 0 if given else errors.USAGE
    if given[0] == "--version":
        sys.stdout.write(f"translate {translate.__version__}\n")
        return 0
    command = COMMANDS.get(given[0])
    if command is None:
        raise errors.UsageError(f"unknown command {given[0]!r}{nearest(given[0], COMMANDS)}")
    options = given[1 : given.index("--")] if "--" in given else given[1:]
    if "--help" in options or "-h" in options:
        chosen = [each for each in options if "=" in each and is_choice(each)]
        sys.stdout.write(command.help(chosen) + COMMON_HELP)
        return 0
    syntax = command.syntax()
    parsed = arguments.split(syntax, given[1:])
    if "run" in parsed.verbatim:
        parsed.verbatim["run"] = whole_run(parsed.verbatim["run"])
    elif command.stored and "run" in syntax.verbatim and not parsed.inspects:
        keys = list(map(key_of, parsed.overrides))
        if meant := difflib.get_close_matches("run", keys, n=1):
            raise errors.UsageError(f"{meant[0]} is not a key; did you mean run?")
        named = parsed.sentences[:1]  # it may be too long for a Path
        if named and os.path.isfile(f"{named[0]}/config.yaml"):  # noqa: PTH113
            raise errors.UsageError(f"run=PATH is missing; did you mean run={named[0]}?")
        raise errors.UsageError("run=PATH is missing: give the folder that translate train wrote")
    _log_to_stderr(alone=command.name != "train" or is_first_process())
    command.call(parsed)
    return 0


def _table() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())


class _Stderr(logging.Handler):
    """A handler for what is standard error at the time: a progress bar replaces it.

    What a file, a run or a model is called may be a stranger's: it moves no terminal.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(escaped(self.format(record), kept="\n\t") + "\n")
        except Exception:
            self.handleError(record)


def _log_to_stderr(*, alone: bool) -> None:
    """Standard output belongs to results. Beyond the first process of a training, only warnings."""
    handler = _Stderr()
    handler.setLevel(logging.INFO if alone else logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler], force=True)
    # they tell of a font cache, of every statistic, of every plugin, of another cache
    for library in ("matplotlib", "sacrebleu", "alembic", "torch._subclasses"):
        logging.getLogger(library).setLevel(logging.WARNING)
