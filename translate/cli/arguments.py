"""The arguments of a command line: settings, values taken verbatim, and sentences.

Settings are YAML, and Hydra composes some of them: sentences and paths, which may hold quotes,
commas, `=` or `${`, must not be read so. The rules, in order:

1. `--` ends the options: all that follow are sentences.
2. `run=…`, `input=…`, `output=…` and the other keys that a command takes verbatim: as they stand,
   each once unless it is `repeatable`.
3. A leading dash: a flag, or a sentence if there is a space (`- ¿Quién es?`).
4. `name=…` or `name.name=…`, with hyphens and brackets, or with slashes (`runs/toy-seed=1`, which
   has both, is a run): a setting. Where there is no such key,
   that is an error: a slip in a key must not come back translated. As a sentence, `x=1` stands
   after `--`.
5. Anything else: a sentence (for `compare`, a run), or an error for a command that takes none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from translate.compose import MEANT
from translate.errors import UsageError
from translate.names import on_demand
from translate.run_folder import paths_in
from translate.wording import nearest, shortened

SETTING = re.compile(r"(?P<sign>\+{0,2}|~)[A-Za-z_]([\w.@:\[\]-]*|[\w./@:]*)=", re.ASCII)

# the flags of commands that Hydra composes, under each of their names
MULTIRUN, SHOW, FOLDER = "--multirun", "--cfg", "--config-dir"
FLAGS = {MULTIRUN: MULTIRUN, "-m": MULTIRUN, SHOW: SHOW, "-c": SHOW, FOLDER: FOLDER, "-cd": FOLDER}

# what a dash before a key may be meant for
GROUPS = (
    "data",
    "tokenizer",
    "model",
    "search",
    "optimizer",
    "schedule",
    "trainer",
    "seed",
    "cache",
)


@dataclass(frozen=True)
class Syntax:
    """The properties of a command that the parser must know."""

    name: str
    verbatim: tuple[str, ...] = ()  # keys whose value is taken as it stands
    texts: tuple[str, ...] = ()  # those of them that are no paths
    repeatable: tuple[str, ...] = ()  # those of them that may be given several times
    lists: tuple[str, ...] = ()  # those of them that are several paths, separated by commas
    sentences: bool = False  # whether bare arguments are sentences (or runs to compare)
    composed: bool = False  # whether Hydra composes its configuration, and there are flags


@dataclass(frozen=True)
class Job:
    """The work of a command: a composed configuration beside what was taken verbatim."""

    config: Mapping[str, Any]
    verbatim: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)  # group → the option chosen
    overrides: tuple[str, ...] = ()  # this job's
    composing: tuple[str, ...] = ()  # the flags that it was composed with
    multirun: bool = False  # one of a sweep
    swept: tuple[str, ...] = ()  # of the overrides, those that differ from job to job


def file_name(overrides: Sequence[str]) -> str:
    """Return the name that keeps a job's files apart from those of other jobs of a sweep."""
    name = ",".join(overrides).replace("/", "_")
    if (short := shortened(name)) != name:
        name = f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def whole_run(run: str) -> str:
    """Return the folder of a run where its bundle is named: the next bundle replaces that one."""
    folder = Path(run).absolute()
    of_a_run = folder.name == "bundle" and (folder.parent / "config.yaml").is_file()
    return str(folder.parent) if of_a_run else run


@dataclass(frozen=True)
class Arguments:
    """A command line, taken apart."""

    overrides: tuple[str, ...]  # settings, and choices of options
    verbatim: dict[str, str]
    sentences: tuple[str, ...]
    repeated: dict[str, tuple[str, ...]]  # every value of the keys that may be given again
    added: tuple[str, ...] = ()  # overrides that nobody has typed, which stand before the others
    multirun: bool = False  # overrides may be sweeps: one job for each combination
    shows: bool = False  # only the configuration is asked for
    config_dir: str | None = None  # a further folder of options

    @property
    def composing(self) -> tuple[str, ...]:
        """The flags that another process needs to compose the same."""
        return () if self.config_dir is None else (FOLDER, self.config_dir)

    def beginning_with(self, added: Iterable[str]) -> Arguments:
        """Return the arguments with overrides that a command gives itself."""
        added = (*added, *self.added)
        typed = self.overrides[len(self.added) :]
        return replace(self, overrides=(*added, *typed), added=added)


def split(syntax: Syntax, arguments: Sequence[str]) -> Arguments:
    """Take apart what follows the command's name.

    Raises:
        UsageError: an argument that is none of the kinds above.
    """
    overrides: list[str] = []
    verbatim: dict[str, tuple[str, ...]] = {}
    sentences: list[str] = []
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument == "--":
            sentences += rest
            break
        if equals and name in syntax.verbatim:
            value = _as_typed(syntax, name, value)
            if name in verbatim and name not in syntax.repeatable:
                raise UsageError(
                    f"{name}= is given twice, as {verbatim[name][0]!r} and {value!r}: keep only one"
                )
            verbatim[name] = (*verbatim.get(name, ()), value)
        elif equals and name == "debug":
            if value not in ("true", "false"):
                raise UsageError(f"debug = {value!r}: must be true or false")
        elif re.fullmatch(r"-\S+", argument):
            flag = _flag(syntax, argument, rest)
            if flag != MULTIRUN and not equals:
                value = rest.pop(0) if rest else ""
            flags[flag] = _value_of(flag, value)
        elif match := SETTING.match(argument):
            if match["sign"]:
                raise UsageError(
                    f"{argument}: keys can be neither added (+) nor removed (~); an existing key "
                    "takes its value without a sign: KEY=VALUE"
                )
            overrides.append(argument)
        elif argument.startswith("="):
            raise UsageError(
                f"{argument!r}: write KEY=VALUE without spaces around = (to translate a sentence "
                "that begins like this, put it after --)"
            )
        else:
            sentences.append(argument)
    if sentences and not syntax.sentences:
        raise UsageError(
            f"{sentences[0]!r} is not KEY=VALUE, and {syntax.name} takes no sentences (see "
            f"translate {syntax.name} --help)"
        )
    return Arguments(
        overrides=tuple(overrides),
        verbatim={name: values[-1] for name, values in verbatim.items()},
        sentences=tuple(sentences),
        repeated={name: verbatim[name] for name in syntax.repeatable if name in verbatim},
        multirun=MULTIRUN in flags,
        shows=SHOW in flags,
        config_dir=flags.get(FOLDER),
    )


def _as_typed(syntax: Syntax, name: str, value: str) -> str:
    """Return the value of a verbatim key, with the paths that a shell would have made of it."""
    if not value:
        kind = "TEXT" if name in syntax.texts else "PATH"
        raise UsageError(f"{name}= has no value: write {name}={kind}")
    if name in syntax.texts:
        return value
    if name not in syntax.lists:
        return _at_home(value)
    paths = [_at_home(path.strip()) for path in paths_in(value)]
    if "" in paths:
        raise UsageError(f"{name}={value}: a path is missing between its commas")
    return ",".join(paths)


def _at_home(path: str) -> str:
    """Replace a ~ in front as a shell would; an unknown user's stays."""
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        return path


def _flag(syntax: Syntax, argument: str, rest: Sequence[str]) -> str:
    """Return the full name of a flag; the values of others may be in the `rest`."""
    name, _, value = argument.partition("=")
    if name not in FLAGS:
        value = value or (rest[0] if rest and not rest[0].startswith("-") else "VALUE")
        key = name.lstrip("-").replace("-", "_")
        groups = GROUPS if syntax.composed else ("search",)
        if setting := on_demand(MEANT)(key, {*groups, *syntax.verbatim}):
            remedy = re.sub(r"=[A-Z]+", lambda _: f"={value}", setting)
            raise UsageError(f"{name} is another toolkit's option: write {remedy}")
        if key in syntax.verbatim or key.partition(".")[0] in groups:
            raise UsageError(f"{name} is not an option, but a key: write {key}={value}")
        known = ["--help", *(sorted({*FLAGS.values()}) if syntax.composed else ())]
        raise UsageError(
            f"{name} is not an option{nearest(name, known)} (put a sentence that begins like this "
            "after --)"
        )
    if not syntax.composed:
        raise UsageError(f"{name} is an option of train, prepare and doctor alone")
    return FLAGS[name]


def _value_of(flag: str, value: str) -> str:
    if flag == SHOW and value != "job":
        raise UsageError(f"{flag} {value}: write -c job")
    if flag == FOLDER and not Path(value or "-").is_dir():
        raise UsageError(f"{flag} {value}: there is no such folder")
    if flag == MULTIRUN and value:
        raise UsageError(f"{flag} takes no value: leave out {value}")
    return value


def wants_debug(arguments: Sequence[str]) -> bool:
    """Tell whether `debug=true` is an option of a command line that may be wrong."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "debug=true" in options
