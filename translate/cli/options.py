"""The options of a command: one field each, of which parsing, help and documentation are made.

A command that works on a finished run reads KEY=VALUE onto these fields, without Hydra. `train`,
`prepare` and `doctor` compose their configuration with Hydra, and have only their paths here.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, PositiveInt
from pydantic.fields import FieldInfo

from translate import machine
from translate.cli.arguments import Arguments, Syntax
from translate.compose import (
    STORED,
    key_of,
    missing,
    node_of,
    not_one_option,
    options,
    overlay,
    refer,
    references_in,
)
from translate.config import Node, check, problems
from translate.errors import UsageError
from translate.inference import Engine, Precision
from translate.inference.minimum_bayes_risk import Utility
from translate.names import on_demand
from translate.run_folder import configuration, paths_in
from translate.wording import counted, nearest

WIDTH, INDENT = 100, 17  # characters of a line of help, and in front of its descriptions


@dataclass(frozen=True)
class Verbatim:
    """The mark of a value that is taken as it was typed: a path, or a text."""

    kind: str = "PATH"  # or TEXT
    repeatable: bool = False
    several: bool = False  # paths, separated by commas


@dataclass(frozen=True)
class Bare:
    """The mark of the arguments that are no KEY=VALUE: sentences, or runs to compare."""


@dataclass(frozen=True)
class Group:
    """The mark of a node whose option is chosen by name, `search=beam`; its keys follow a dot."""

    default: str = STORED  # what the run carries
    check: Callable[[Any], list[str]] = lambda node: []  # every problem of the node


def _names_a_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", value):
        raise ValueError("must be auto, cpu, mps, cuda or cuda:N")
    return value


Device = Annotated[str, AfterValidator(_names_a_device)]
Folder = Annotated[str, Field(min_length=1)]  # empty, it would be the one worked in
PathOption = Annotated[str, Verbatim()]
PathList = Annotated[tuple[str, ...], Verbatim(several=True)]
RepeatedPath = Annotated[tuple[str, ...], Verbatim(repeatable=True)]
TextOption = Annotated[str, Verbatim("TEXT")]
Sentences = Annotated[tuple[str, ...], Bare()]


def search_problems(node: dict[str, Any]) -> list[str]:
    """Return every problem of the node `search`."""
    from translate.search import problems

    return problems(node)


MOST_PER_CORE = 8  # workers
# keys that change what the model finds likely
OTHER_PROBABILITIES = ("ensemble", "prefix", "prefixes", "constraints", "shortlist")
# the options that an engine on the porch lacks, by the name of what lists them
ENGINES_LACK = {"ctranslate2": "translate.extras.ctranslate2_engine:problems"}
TARGET = "of a multilingual run: the tag of the language to translate into; null: as stored"
CORPUS = "default: as stored in the run (data.dir=PATH if it has moved)"


def marks_of(field: FieldInfo) -> list[Any]:
    """Return what is noted beside the type of a field, or of one of the types that it may have."""
    inner = [getattr(each, "__metadata__", ()) for each in get_args(field.annotation)]
    return [*field.metadata, *chain(*inner)]


DEVICE: Any = Field("auto", description="auto, cpu, cuda, cuda:1 or mps")
CACHE: Any = Field(
    default_factory=lambda: os.environ.get("TRANSLATE_CACHE", "data"),
    description="the folder of downloads and prepared corpora: data, or what the variable "
    "TRANSLATE_CACHE names",
)


class Options(Node):
    """The options of one command; a subclass has a field for each, with default and description."""

    needs_model: ClassVar[bool] = True  # of its run, a bundle and not only a folder
    usage: ClassVar[str]  # examples and explanations: the help, but for its first line and its keys

    overrides: tuple[str, ...] = ()  # KEY=VALUE of the command line, as typed

    @property
    def typed(self) -> frozenset[str]:
        """The keys that were typed."""
        return frozenset(map(key_of, self.overrides))

    @classmethod
    def marked(cls, mark: type[Any]) -> dict[str, Any]:
        """Return the keys whose fields bear such a mark, each with its mark."""
        return {
            key: each
            for key, field in cls.fields().items()
            for each in marks_of(field)
            if isinstance(each, mark)
        }

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields that can be given, by their names on the command line."""
        fields = cls.model_fields.items()
        return {field.alias or name: field for name, field in fields if name != "overrides"}

    @classmethod
    def run_of(cls, arguments: Arguments) -> str | None:
        """Return the run whose nodes can be chosen as `stored`."""
        return arguments.verbatim.get("run")

    @property
    def verbatim(self) -> dict[str, Any]:
        """The paths and texts that are given, by key."""
        texts = {key: getattr(self, key) for key in self.marked(Verbatim)}
        return {key: value for key, value in texts.items() if value not in (None, ())}

    @classmethod
    def stored_nodes(cls, run: str | None) -> dict[str, dict[str, Any]]:
        """Return the nodes that a run carries: how it searches, its corpus and its tokenizer.

        Raises:
            UserError: the run has no model, or no configuration, that can be read.
        """
        groups, carried = cls.marked(Group), dict[str, Any]()
        if run is None:
            return {group: {} for group in groups}
        from translate.inference import bundle  # PyTorch, which not all commands need

        if cls.needs_model:
            bundle.find(run)  # a missing run is told before a missing file
        if "search" in groups:
            carried["search"] = bundle.of_run(run).config.search
        if "data" in groups:
            carried = configuration(run) | carried  # the search is the model's own
        return {group: carried.get(group, {}) for group in groups}

    @classmethod
    def syntax(cls, name: str, *, composed: bool) -> Syntax:
        """Return what the parser of the command's arguments must know."""
        marks = cls.marked(Verbatim)
        return Syntax(
            name=name,
            verbatim=tuple(marks),
            texts=tuple(key for key, mark in marks.items() if mark.kind == "TEXT"),
            repeatable=tuple(key for key, mark in marks.items() if mark.repeatable),
            lists=tuple(key for key, mark in marks.items() if mark.several),
            sentences=bool(cls.marked(Bare)),
            composed=composed,
        )

    @classmethod
    def read(
        cls,
        arguments: Arguments,
        stored: Mapping[str, Mapping[str, Any]],
    ) -> Self:
        """Read a command line; a UsageError lists everything that is wrong in it.

        Args:
            stored: group → what a run carries of it, to be chosen as `GROUP=stored`.
        """
        values, wrong = cls.values_of(arguments, stored)
        for key, group in cls.marked(Group).items():
            wrong += group.check(values[key])
        taken = {*cls.marked(Verbatim), *cls.marked(Bare)}  # whatever bytes they have
        plain = {key: _decoded(value) if key in taken else value for key, value in values.items()}
        check([*wrong, *problems(cls, plain, "", combined=False)], UsageError)
        options = cls.model_validate({**values, "overrides": arguments.overrides})
        check(options.contradictions(), UsageError)
        return options

    @classmethod
    def values_of(
        cls,
        arguments: Arguments,
        stored: Mapping[str, Mapping[str, Any]],
    ) -> tuple[dict[str, Any], list[str]]:
        """Lay the command line over the defaults; return the values, and what is wrong in it."""
        groups, keys = cls.marked(Group), cls.fields()
        choices = {key: group.default for key, group in groups.items()}
        inner: dict[str, dict[str, str]] = {key: {} for key in groups}
        plain, wrong = [], []
        for override in arguments.overrides:
            key, _, value = override.partition("=")
            name, _, place = key.partition("@")
            group, _, below = place.partition(".")
            if key in groups or (below and group in groups):
                known = [*options(name), *([STORED] if key in stored else [])]
                if value.startswith("["):
                    wrong.append(not_one_option(override))
                elif value not in known:
                    wrong.append(f"{override}: no such option{nearest(value, known)}")
                elif below:
                    inner[group][below] = value
                else:
                    choices[key] = value
            else:
                plain.append(override)
        values = {
            key: field.get_default(call_default_factory=True)
            for key, field in keys.items()
            if not field.is_required()
        }
        for key, choice in choices.items():
            if choice == STORED:
                values[key] = dict(stored.get(key, {}))
            else:
                values[key] = node_of(key, choice, inner[key])
        files = {key: values[key] for key, choice in choices.items() if choice != STORED}
        references = references_in(files)
        wrong += overlay(values, plain, list(keys))
        refer(values, references)
        wrong += missing(values)
        for key, mark in cls.marked(Verbatim).items():
            if key in arguments.verbatim:
                text = arguments.verbatim[key]
                values[key] = paths_in(text) if mark.several else text
            if key in arguments.repeated:
                values[key] = list(arguments.repeated[key])
        for key in cls.marked(Bare):
            values[key] = list(arguments.sentences)
        return values, wrong

    @classmethod
    def help(cls, title: str) -> str:
        """Return the help of the command under a first line."""
        lines = [title, "", cls.usage.strip("\n"), "", "Keys:"]
        for key, field in cls.fields().items():
            if field.description is not None:
                lines += key_lines(key, described(field))
        return "\n".join(lines) + "\n"


def _decoded(value: Any) -> Any:
    """Return a text, or texts, without what is no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_decoded(each) for each in value] if isinstance(value, list | tuple) else value


class CorpusOptions(Options):
    """Options of a command that reads the corpus of a run."""

    data: Annotated[Any, Group()] = Field(None, description=f"the corpus; {CORPUS}")
    tokenizer: Annotated[Any, Group()] = Field(
        None, description="how it is cut into pieces; default: as stored in the run"
    )
    cache: Folder = CACHE


class SplitOptions(CorpusOptions):
    """Options of a command that reads a split of the corpus of a run."""

    split: Literal["test", "dev"] = Field(
        "test", alias="data.split", description="test or dev, of the corpus of the run"
    )

    @property
    def corpus(self) -> dict[str, Any]:
        """The arguments that name a split of a corpus, as `corpus_of_run` takes them."""
        same = ("split", "data", "tokenizer", "cache")
        return {key: getattr(self, key) for key in same}

    def check_corpus(self) -> None:
        """Raise a UsageError where keys of a corpus stand beside files, which are read instead."""
        for key in sorted(self.typed):
            if key.partition(".")[0] in ("data", "tokenizer"):
                raise UsageError(
                    f"{key}= and input= cannot be combined: {key}= chooses from the run's corpus, "
                    "input= and reference= give sentences of your own; leave out one of the two"
                )


class TestSetOptions(SplitOptions):
    """Options of a command that judges translations of a test set."""

    input: PathOption | None = Field(
        None, description="source sentences of your own, one per line, with"
    )
    reference: RepeatedPath = Field(
        (),
        description="their translations, one per line; repeat for further files of references; a "
        "blank line counts as no reference where another file has one",
    )

    @property
    def test_set(self) -> dict[str, Any]:
        """The arguments of `read_test_set`: files, or a split of a corpus."""
        if self.input is not None or self.reference:
            self.check_corpus()
        domains = getattr(self, "domains", None)
        files = {"input": self.input, "references": self.reference, "domains": domains}
        return {**self.corpus, **files}


class TranslatingOptions(Options):
    """Options of a command that translates."""

    run: PathOption = Field(description="the folder of the run")
    ensemble: PathList | None = Field(
        None, description="further runs, separated by commas, whose probabilities are averaged"
    )
    search: Annotated[Any, Group(check=search_problems)] = Field(
        None,
        description="how to search; default: as stored in the run (translate models group=search)",
    )
    target: str | None = Field(None, description=TARGET)
    mbr: Utility | None = Field(
        None,
        description="chrf or bleu: of search.n_best translations, choose the one most like all of "
        "them (minimum Bayes risk)",
    )
    shortlist: PathOption | None = Field(
        None,
        description="a file from translate shortlist: faster, with only each sentence's likely "
        "words; probabilities are then relative to these words",
    )
    terms: PathOption | None = Field(
        None,
        description="a file of SOURCE<tab>TARGET lines, what terms are to be called: several lines "
        "of a term are alternatives; a sentence whose translation lacks one is searched again",
    )
    replace_unknown: bool = Field(
        False,
        description="true: replace each <unk> by the source word that it attends to most; only a "
        "model whose vocabulary lacks some words of the training text writes <unk>, as with "
        "tokenizer=word tokenizer.vocab_size=1500",
    )
    dictionary: PathOption | None = Field(
        None,
        description="with replace_unknown: a file of SOURCE<tab>TARGET lines, for words that are "
        "not to be copied",
    )
    engine: Engine = Field(
        "native", description="native, or ctranslate2 for what translate export has written"
    )
    export: PathOption | None = Field(
        None,
        description="with engine=ctranslate2: the folder of the export; default: ctranslate2 in "
        "the run",
    )
    workers: PositiveInt | None = Field(
        None,
        description="on a CPU, how many single-threaded processes translate batches in parallel; "
        "1: one process on all threads; null: one per core, where the system can fork "
        "(engine=ctranslate2: threads, in one process)",
    )
    precision: Precision | None = Field(
        None,
        description="float32, bf16 or int8, the numbers to compute with: bf16 is faster on GPUs, "
        "with AMX, and on AMD CPUs with AVX512-BF16; int8 on any x86 CPU, with less memory and a "
        "little lower quality; null: those of the weights",
    )
    device: Device = DEVICE
    tokens_per_batch: PositiveInt | None = Field(
        None,
        description="source tokens, padding included, translated at once, by all workers together; "
        "null: 8192, on a GPU 16384, with engine=ctranslate2 on a CPU 4096",
    )

    def loading(self) -> dict[str, Any]:
        """Return the arguments of `translate.inference.translator.load`, but for the run."""
        from translate.inference.unknown_words import UnknownWords

        words = UnknownWords({}) if self.replace_unknown else None
        if self.dictionary is not None:
            words = UnknownWords.read(self.dictionary)
        same = ("target", "search", "mbr", "shortlist", "terms", "engine", "export", "workers",
                "precision", "device", "tokens_per_batch")  # fmt: skip
        return {
            "ensemble": self.ensemble or (), "unknown_words": words,
            **{key: getattr(self, key) for key in same},
        }  # fmt: skip

    def contradictions(self) -> Iterator[str]:
        yield from self._beyond_the_engine()
        if self.dictionary is not None and not self.replace_unknown:
            yield (
                f"dictionary={self.dictionary} only serves to replace unknown words: add "
                "replace_unknown=true"
            )
        if self.mbr is not None and self.search.get("n_best", 1) == 1:
            # of one translation, which is the default, there is none to choose
            yield (
                f"mbr = {self.mbr} chooses among several translations: set search.n_best, for "
                "instance search=sample search.n_best=30"
            )

    def _beyond_the_engine(self) -> list[str]:
        """List the options of a valid configuration that the engine lacks, one line each."""
        cores = machine.cores()
        if (self.workers or 1) > MOST_PER_CORE * cores:
            return [
                f"workers = {self.workers}: this process has {counted(cores, 'core')}, and more "
                "workers than cores only take memory: choose at most "
                f"{MOST_PER_CORE * cores}"
            ]
        if self.engine == "native":
            folder = self.verbatim.get("export")
            return [f"export = {folder} needs engine=ctranslate2"] if folder else []
        problems = on_demand(ENGINES_LACK[self.engine])
        return list(problems(dict(self), self.verbatim, lacking=OTHER_PROBABILITIES))


def key_lines(key: str, description: str, indent: int = INDENT) -> list[str]:
    """Return the lines of help about a key."""
    return textwrap.wrap(
        f"{key:<{indent - 4}}  {description}",
        WIDTH, initial_indent="  ", subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def described(field: FieldInfo) -> str:
    """Return the description of an option with its default."""
    default = field.get_default(call_default_factory=True)
    if default in (None, "", ()) or any(isinstance(mark, Group) for mark in marks_of(field)):
        return str(field.description)
    if field.is_required():
        return f"{field.description} (required)"
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return f"{field.description} (default: {shown})"
