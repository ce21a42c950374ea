"""The program `translate`: its commands, and how one is found, runs and ends."""

from __future__ import annotations

import difflib
import gc
import importlib
import io
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import translate
from translate import machine
from translate.cli.arguments import Arguments, Syntax, split, wants_debug, whole_run
from translate.compose import is_choice, key_of
from translate.errors import JobFailedError, UsageError, UserError
from translate.names import on_demand
from translate.training.launch import is_first_process
from translate.wording import escaped, nearest

if TYPE_CHECKING:
    from translate.cli.options import Options

FAILURE, USAGE, BROKEN_PIPE = 1, 2, 141  # 128 + the signal, as shells count
STOPPING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

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

KEY_INDENT = 38  # of the descriptions of a node's keys in a help
COMPOSED_HELP = """
Hydra composes the configuration:
  -c job         print it and stop; every key in it can be given as KEY=VALUE
                 (docs/configuration.md explains them; so does model=transformer --help)
  --multirun     KEY=A,B,C runs the command once for each value
"""


@dataclass(frozen=True)
class Command:
    """One command: its module declares its options, and runs it."""

    name: str
    summary: str
    stored: bool = False  # whether it works on runs that `translate train` wrote
    composed: bool = False  # whether Hydra composes its configuration
    place: str = "translate.cli"  # the package of its module

    @property
    def module(self) -> str:
        """The full name of the module that implements it."""
        return f"{self.place}.{self.name}"

    @property
    def options(self) -> type[Options]:
        """The class that declares its options."""
        options: type[Options] = on_demand(f"{self.module}:{self.name.capitalize()}Options")
        return options

    def help(self, choices: Sequence[str] = ()) -> str:
        """Return the help text, with the keys of options that are chosen: `model=rnn_luong`."""
        text = self.options.help(f"translate {self.name}: {self.summary}")
        if not self.composed:
            return text
        if not choices:
            return f"{text}{COMPOSED_HELP}"
        return "\n".join([text, *(option_help(*choice.split("=", 1)) for choice in choices)])

    def call(self, arguments: Arguments) -> None:
        """Run the command with arguments that were parsed by its `syntax`."""
        module = importlib.import_module(self.module)
        if not self.composed:
            stored = self.options.stored_nodes(self.options.run_of(arguments))
            options = self.options.read(arguments, stored)
            self.end_of_imports()
            module.run(options)
        else:
            module.main(self, arguments)

    def end_of_imports(self) -> None:
        """Look for garbage from here on, but not among what the program has imported.

        Where a first job has done so already, as in a sweep, what it left behind is looked through.
        """
        if self.computes_with:
            importlib.import_module(self.computes_with)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def syntax(self) -> Syntax:
        """Return what the parser of its arguments must know."""
        syntax: Syntax = self.options.syntax(self.name, composed=self.composed)
        return syntax

    @property
    def computes_with(self) -> str | None:
        """The module of what takes long to import, if its job does."""
        if self.name == "train":
            return "translate.training.run"
        return "translate.inference.translator" if self.stored else None


COMMANDS = {
    command.name: command
    for command in [
        Command(
            "prepare", "fetch a corpus, clean it, split it, train its tokenizer", composed=True
        ),
        Command("doctor", "find what may be wrong with a corpus, line by line", composed=True),
        Command("train", "train a model, or resume an interrupted run", composed=True),
        Command("average", "average several checkpoints of a run into one model", stored=True),
        Command("text", "translate sentences, a file or standard input", stored=True),
        Command("evaluate", "compute BLEU, chrF and TER on a split or on files", stored=True),
        Command(
            "calibrate", "learn from the dev sentences how reliable translations are", stored=True
        ),
        Command(
            "shortlist", "learn which words translate which, to speed up the search", stored=True
        ),
        Command("verify", "recompute a stored score and check that it is the same", stored=True),
        Command(
            "compare",
            "compare runs side by side, and test whether differences are more than chance",
            stored=True,
        ),
        Command("attend", "draw what the model attends to in a sentence", stored=True),
        Command(
            "align",
            "link the words that translate each other; error rate against gold links",
            stored=True,
        ),
        Command(
            "score", "compute log-probability and perplexity of given translations", stored=True
        ),
        Command("export", "write the model in the format of another engine", stored=True),
        Command("models", "list what can be chosen, one line each"),
    ]
}


def option_help(group: str, option: str) -> str:
    """Return the help about the keys of an option.

    Raises:
        UsageError: the group has no such option.
    """
    from translate.cli.options import key_lines
    from translate.compose import options
    from translate.nodes import descriptions

    if option not in (known := options(group)):
        raise UsageError(f"{group}={option}: no such option{nearest(option, known)}")
    lines = [f"Keys of {group}={option}:"]
    for key, default, description in descriptions(group, option):
        shown = json.dumps(default, ensure_ascii=False)
        node = isinstance(default, dict)
        text = description if node else f"{description} (default: {shown})"
        lines += key_lines(key, text, KEY_INDENT)
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on `argv` (default: the process's own) and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.disable()  # until a job begins: to search what is imported, and stays, took a tenth of that
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding that lacks a sign has a ? for it
    if machine.cores() < (os.cpu_count() or 1):  # libraries ask how many there are, once
        os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    try:
        with stopped_by_signals():
            status = _dispatch(words)
            sys.stdout.flush()  # here, where a closed pipe or a full disk can still be reported
    except (Exception, StoppedError, JobFailedError) as error:
        return report(error, debug=wants_debug(words))
    finally:
        gc.enable()
    return status


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP.format(commands=_table()))
        return 0 if words else USAGE
    if words[0] == "--version":
        sys.stdout.write(f"translate {translate.__version__}\n")
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        raise UsageError(f"unknown command {words[0]!r}{nearest(words[0], COMMANDS)}")
    options = words[1 : words.index("--")] if "--" in words else words[1:]
    if "--help" in options or "-h" in options:
        chosen = [each for each in options if "=" in each and is_choice(each)]
        sys.stdout.write(command.help(chosen) + COMMON_HELP)
        return 0
    syntax = command.syntax()
    parsed = split(syntax, words[1:])
    if "run" in parsed.verbatim:
        parsed.verbatim["run"] = whole_run(parsed.verbatim["run"])
    elif command.stored and "run" in syntax.verbatim:
        keys = list(map(key_of, parsed.overrides))
        if meant := difflib.get_close_matches("run", keys, n=1):
            raise UsageError(f"{meant[0]} is not a key; did you mean run?")
        raise UsageError("run=PATH is missing: give the folder that translate train wrote")
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


class StoppedError(BaseException):
    """A signal came while nothing was under way that could be saved.

    Not Python's KeyboardInterrupt: Lightning answers that one by leaving with status 1.
    """

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; to go on or start again, give the same command")
        self.exit_code = 128 + number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a terminal that closes raise: half-written files are then removed."""
    if threading.current_thread() is not threading.main_thread():  # others cannot handle signals
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number)

    before = {each: signal.getsignal(each) for each in STOPPING}
    if before[signal.SIGHUP] == signal.SIG_IGN:  # under nohup
        del before[signal.SIGHUP]
    for each in before:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def report(error: BaseException, *, debug: bool) -> int:
    """Write what went wrong to standard error; return the exit status."""
    if isinstance(error, JobFailedError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    if isinstance(code := getattr(error, "exit_code", None), int):  # ended by a signal, all saved
        sys.stderr.write(f"translate: {error}\n")
        return code
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, UserError):
        _say(str(error))
        return USAGE if isinstance(error, UsageError) else FAILURE
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:  # not a file of ours: most likely stdout on a full disk
            _silence_stdout()
        _say(f"{error.filename or 'output'}: {error.strerror}")
        return FAILURE
    text = " ".join(str(error).split()) or "no message"
    hint = "" if debug else "; run again with debug=true for the traceback"
    _say(f"{type(error).__name__}: {text}{hint}")
    return FAILURE


def _say(text: str) -> None:
    sys.stderr.write(escaped(f"translate: error: {text}\n", kept="\n\t"))


def _silence_stdout() -> None:
    """Python flushes stdout once more on the way out: into nothing, rather than fail again."""
    with suppress(OSError, ValueError):  # stdout may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
