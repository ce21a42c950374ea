"""The commands of the program: what each is for and which of its arguments are taken verbatim."""

from __future__ import annotations

import gc
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from translate.names import on_demand
from translate.wording import shortened

if TYPE_CHECKING:
    from translate.cli.arguments import Arguments
    from translate.cli.options import Options

COMPOSED_HELP = """
Hydra composes the configuration:
  -c job         print it and stop; every key in it can be given as KEY=VALUE
                 (docs/configuration.md explains them)
  --multirun     KEY=A,B,C runs the command once for each value
"""


@dataclass(frozen=True)
class Command:
    """One command; `translate.cli.<name>` implements it and its `HELP` is the help text.

    Its `main` begins it; where there is none, the configuration is composed and its `job` called.
    """

    name: str
    summary: str
    verbatim: tuple[str, ...] = ()  # keys whose value never goes through Hydra's grammar
    texts: tuple[str, ...] = ()  # those of them that are no paths
    repeatable: tuple[str, ...] = ()  # those of them that may be given several times
    sentences: bool = False  # whether bare arguments are sentences (or runs to compare)
    pipe: bool = False  # whether it reads standard input where it is told nothing else
    stored: bool = False  # whether it works on runs that `translate train` wrote
    lists: tuple[str, ...] = ()  # keys of several paths, separated by commas
    composed: bool = False  # whether Hydra composes its configuration
    place: str = "translate.cli"  # the package of its module

    keys: frozenset[str] = frozenset()  # its own, beside those of groups

    @property
    def module(self) -> str:
        """The full name of the module that implements it."""
        return f"{self.place}.{self.name}"

    @property
    def options(self) -> type[Options]:
        """The class that declares its options."""
        options: type[Options] = on_demand(f"{self.module}:{self.name.capitalize()}Options")
        return options

    def help(self) -> str:
        """Return the help text."""
        return self.options.help(self) + (COMPOSED_HELP if self.composed else "")

    def call(self, arguments: Arguments) -> None:
        """Run the command with the arguments that `line` tells how to take apart."""
        module = importlib.import_module(self.module)
        if not self.composed:
            from translate.cli.stored import nodes_of

            stored = nodes_of(self.options.run_of(arguments), self.options.choices())
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

    def line(self) -> Command:
        """Return the command with all that the parser of its arguments must know."""
        return self.options.command_line(self)

    @property
    def computes_with(self) -> str | None:
        """The module of what takes long to import, if its job does."""
        if self.name == "train":
            return "translate.training.run"
        return "translate.inference.translator" if self.stored else None


@dataclass(frozen=True)
class Job:
    """What a command works on: the composed configuration beside what was taken verbatim."""

    config: Mapping[str, Any]
    verbatim: Mapping[str, str] = field(default_factory=dict)
    repeated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)  # group → the option chosen
    overrides: tuple[str, ...] = ()  # this job's
    composing: tuple[str, ...] = ()  # the flags that it was composed with
    multirun: bool = False  # one of a sweep
    swept: tuple[str, ...] = ()  # of the overrides, those that differ from job to job


def file_name(overrides: Sequence[str]) -> str:
    """What a job's own files are told by from those of the other jobs of a sweep."""
    name = ",".join(overrides).replace("/", "_")
    if (short := shortened(name)) != name:
        name = f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def whole_run(run: str) -> str:
    """The folder of a run where its bundle is named: what lies in that goes with the next one."""
    folder = Path(run).absolute()
    of_a_run = folder.name == "bundle" and (folder.parent / "config.yaml").is_file()
    return str(folder.parent) if of_a_run else run


COMMANDS = {
    command.name: command
    for command in [
        Command(
            "prepare", "fetch a corpus, clean it, split it, train its tokenizer", composed=True
        ),
        Command("doctor", "find what may be wrong with a corpus, line by line", composed=True),
        Command("train", "train a model, or resume an interrupted run", composed=True),
        Command(
            "average",
            "average several checkpoints of a run into one model",
            stored=True,
        ),
        Command(
            "text",
            "translate sentences, a file or standard input",
            stored=True,
        ),
        Command(
            "evaluate",
            "compute BLEU, chrF and TER on a split or on files",
            stored=True,
        ),
        Command(
            "calibrate",
            "learn from the dev sentences how reliable translations are",
            stored=True,
        ),
        Command(
            "shortlist",
            "learn which words translate which, to speed up the search",
            stored=True,
        ),
        Command(
            "verify",
            "recompute a stored score and check that it is the same",
            stored=True,
        ),
        Command(
            "compare",
            "compare runs side by side, and test whether differences are more than chance",
            stored=True,
        ),
        Command(
            "attend",
            "draw what the model attends to in a sentence",
            stored=True,
        ),
        Command(
            "align",
            "link the words that translate each other; error rate against gold links",
            stored=True,
        ),
        Command(
            "score",
            "compute log-probability and perplexity of given translations",
            stored=True,
        ),
        Command(
            "export",
            "write the model in the format of another engine",
            stored=True,
        ),
        Command("models", "list what can be chosen, one line each"),
    ]
}


def commands_with(key: str, choice: bool) -> list[str]:
    """Return the commands that have a key of this name, which is or is not a choice of options."""
    owners = []
    for name, command in COMMANDS.items():
        choices = command.options.choices()
        if key in choices if choice else key in command.options.fields() and key not in choices:
            owners.append(name)
    return sorted(owners)
