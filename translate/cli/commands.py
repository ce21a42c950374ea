"""The commands of the program: what each is for and which of its arguments are taken verbatim."""

from __future__ import annotations

import gc
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from translate.errors import UsageError
from translate.names import on_demand
from translate.wording import nearest

if TYPE_CHECKING:
    from translate.cli.arguments import Arguments, Syntax
    from translate.cli.options import Options

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
        """Run the command with the arguments that were taken apart by its `syntax`."""
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
