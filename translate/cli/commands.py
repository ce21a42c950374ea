"""The commands of the program: what each is for and which of its arguments are taken verbatim."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST_NAME = 120  # bytes; file systems end at 255


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
    carried: tuple[str, ...] = ()  # groups of which such a run has a node of its own

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

    def name(self, stem: str, *told: str) -> str:
        """`stem`, and in a sweep what differs from job to job, but for the keys it has `told`."""
        changes = [each for each in self.swept if key_of(each) not in told]
        return "-".join(filter(None, [stem, file_name(changes)]))


def key_of(override: str) -> str:
    """What an override sets or chooses."""
    return override.partition("=")[0]


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


def shortened(name: str) -> str:
    """As much of a name as leaves room for a digest and an ending."""
    content = name.encode("utf-8", "surrogateescape")
    return (
        name if len(content) <= LONGEST_NAME else content[:LONGEST_NAME].decode("utf-8", "ignore")
    )


CORPUS = ("data", "tokenizer")
TRANSLATING = ("run", "ensemble", "input", "output", "dictionary", "export", "shortlist")
COMMANDS = {
    command.name: command
    for command in [
        Command(
            "prepare",
            "fetch a corpus, clean it, split it, train its tokenizer",
            verbatim=("dropped",),
        ),
        Command("doctor", "find what may be wrong with a corpus, line by line", verbatim=("json",)),
        Command("train", "train a model, or resume an interrupted run", verbatim=("run", "init")),
        Command(
            "average",
            "average several checkpoints of a run into one model",
            verbatim=("run", "output"),
            stored=True,
        ),
        Command(
            "text",
            "translate sentences, a file or standard input",
            verbatim=(*TRANSLATING, "prefix", "prefixes", "constraints"),
            texts=("prefix",),
            sentences=True,
            pipe=True,
            stored=True,
            carried=("search",),
        ),
        Command(
            "evaluate",
            "compute BLEU, chrF and TER on a split or on files",
            verbatim=(*TRANSLATING, "reference", "domains", "comet"),
            repeatable=("reference",),
            stored=True,
            carried=("search", *CORPUS),
        ),
        Command(
            "calibrate",
            "learn from the dev sentences how reliable translations are",
            verbatim=("run",),
            stored=True,
            carried=("search", *CORPUS),
        ),
        Command(
            "shortlist",
            "learn which words translate which, to speed up the search",
            verbatim=("run", "output"),
            stored=True,
            carried=CORPUS,
        ),
        Command(
            "verify",
            "recompute a stored score and check that it is the same",
            verbatim=("run", "input", "reference", "output"),
            repeatable=("reference",),
            stored=True,
            carried=CORPUS,
        ),
        Command(
            "compare",
            "compare runs side by side, and test whether differences are more than chance",
            verbatim=("input", "reference", "output"),
            repeatable=("reference",),
            sentences=True,
            stored=True,
            carried=CORPUS,
        ),
        Command(
            "attend",
            "draw what the model attends to in a sentence",
            verbatim=("run", "beside", "reference", "output"),
            texts=("reference",),
            sentences=True,
            stored=True,
            carried=("search",),
        ),
        Command(
            "align",
            "link the words that translate each other; error rate against gold links",
            verbatim=("run", "input", "reference", "output", "gold", "reverse"),
            stored=True,
            carried=CORPUS,
        ),
        Command(
            "score",
            "compute log-probability and perplexity of given translations",
            verbatim=("run", "ensemble", "input", "reference", "output"),
            stored=True,
        ),
        Command(
            "export",
            "write the model in the format of another engine",
            verbatim=("run", "input", "output"),
            stored=True,
        ),
        Command("models", "list what can be chosen, one line each"),
    ]
}
