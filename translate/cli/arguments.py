"""The arguments of a command line: Hydra's, verbatim ones, and sentences.

Hydra's grammar gives a meaning to quotes, commas, `=`, `~`, `${`, brackets and more, so sentences
and paths must never reach it. The rules, in order:

1. `--` ends the options: all that follow are sentences.
2. `run=…`, `input=…`, `output=…` and the other keys that its options take verbatim, and
   `debug=…`: verbatim, each once unless it is `repeatable`.
3. A leading dash: one of Hydra's own flags, or a sentence if there is a space (`- ¿Quién es?`).
4. `name=…` or `name.name=…`, the name plain ASCII without spaces: an override for Hydra. Should
   there be no such key, that is an error: a slip in a key must not come back translated. As a
   sentence, `x=1` stands after `--`.
5. The same with hyphens, brackets or dots where a key has none, if its words are nearly those of a
   key (`tokens-per-batch=9`, `search..beam_size=8`): an error too. `a-b=c` is a sentence.
6. Anything else: a sentence (for `compare`, a run), or an error for a command that takes none.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from translate.cli.errors import UsageError
from translate.compose import words
from translate.run_folder import at_home, paths_in
from translate.wording import nearest, shortened

OVERRIDE = re.compile(
    r"(?P<prefix>\+{0,2}|~)(?P<key>[A-Za-z_][A-Za-z0-9_]*(?:[./@:][A-Za-z0-9_]+)*)="
)
SLIP = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_.\[\]-]*)=")
LONGEST_NAME = 120  # bytes; file systems end at 255
ALIKE = 0.85  # of the letters of a word, for it to be a slip
DELETION = re.compile(r"~[A-Za-z_][\w./]*")

# Hydra's flags → the values of which one follows; capitals stand for any
FLAGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["--multirun", "-m", "--resolve", "--hydra-help", "--version"], ()),
    **dict.fromkeys(["--cfg", "-c"], ("job", "hydra", "all")),
    **dict.fromkeys(["--package", "-p"], ("NODE",)),
    **dict.fromkeys(["--config-dir", "-cd"], ("FOLDER",)),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
SWEEPING = {"--multirun", "-m"}
PACKAGE = {"--package", "-p"}
COMPOSING = {"--config-dir", "-cd", *PACKAGE}  # those that change what is composed
SHOWING = {"-c", "--cfg", "--info", "--hydra-help", "--version"}


@dataclass(frozen=True)
class Syntax:
    """The properties of a command that the parser must know."""

    name: str
    verbatim: tuple[str, ...] = ()  # keys whose value is taken as it stands
    texts: tuple[str, ...] = ()  # those of them that are no paths
    repeatable: tuple[str, ...] = ()  # those of them that may be given several times
    lists: tuple[str, ...] = ()  # those of them that are several paths, separated by commas
    sentences: bool = False  # whether bare arguments are sentences (or runs to compare)
    keys: frozenset[str] = frozenset()  # its keys, beside those of groups
    composed: bool = False  # whether Hydra composes its configuration, and has flags


@dataclass(frozen=True)
class Job:
    """The work of a command: a composed configuration beside what was taken verbatim."""

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
    """Return the name that keeps a job's files apart from those of other jobs of a sweep."""
    name = ",".join(overrides).replace("/", "_")
    if (short := shortened(name)) != name:
        name = f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def whole_run(run: str) -> str:
    """The folder of a run where its bundle is named: what lies in that goes with the next one."""
    folder = Path(run).absolute()
    of_a_run = folder.name == "bundle" and (folder.parent / "config.yaml").is_file()
    return str(folder.parent) if of_a_run else run


@dataclass(frozen=True)
class Arguments:
    """A command line, taken apart."""

    flags: tuple[str, ...]  # Hydra's own options, each with its value behind it
    overrides: tuple[str, ...]  # changes to the configuration
    verbatim: dict[str, str]
    sentences: tuple[str, ...]
    repeated: dict[str, tuple[str, ...]]  # every value of the keys that may be given again
    added: tuple[str, ...] = ()  # overrides that nobody has typed, which stand before the others

    def beginning_with(self, added: Iterable[str]) -> Arguments:
        """Return the arguments with overrides that a command gives itself."""
        own = (*added, *self.added)
        typed = self.overrides[len(self.added) :]
        return replace(self, overrides=(*own, *typed), added=own)

    @property
    def multirun(self) -> bool:
        """Tell whether overrides may be sweeps: one job for each combination."""
        return not SWEEPING.isdisjoint(self.flags)

    @property
    def composing(self) -> tuple[str, ...]:
        """The flags that another process needs to compose the same, with their values."""
        return tuple(chain(*(flag for flag in pairwise(self.flags) if flag[0] in COMPOSING)))

    @property
    def config_dir(self) -> str | None:
        """The further folder of options that is given."""
        return self._value_of("--config-dir", "-cd")

    @property
    def package(self) -> str | None:
        """The node that alone is to be shown."""
        return self._value_of("--package", "-p")

    def _value_of(self, *names: str) -> str | None:
        pairs = pairwise(self.flags)
        return next((value for flag, value in pairs if flag in names), None)

    @property
    def shows_job(self) -> bool:
        """Tell whether only the configuration of a single job is asked for."""
        asked = not {("-c", "job"), ("--cfg", "job")}.isdisjoint(pairwise(self.flags))
        return asked and not self.multirun

    @property
    def inspects(self) -> bool:
        """Tell whether Hydra only shows something and no job will run."""
        return not SHOWING.isdisjoint(self.flags)


def split(syntax: Syntax, arguments: Sequence[str]) -> Arguments:
    """Take apart what follows the command's name.

    Raises:
        UsageError: an argument that is none of the kinds above.
    """
    flags: list[str] = []
    overrides: list[str] = []
    literal: dict[str, tuple[str, ...]] = {}
    sentences: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument == "--":
            sentences += rest
            break
        if equals and name in syntax.verbatim:
            value = _taken_literally(syntax, name, value)
            if name in literal and name not in syntax.repeatable:
                raise UsageError(
                    f"{name}= is given twice, as {literal[name][0]!r} and {value!r}: keep only one"
                )
            literal[name] = (*literal.get(name, ()), value)
        elif equals and name == "debug":
            if value not in ("true", "false"):
                raise UsageError(f"debug = {value!r}: must be true or false")
        elif _is_flag(syntax, argument):
            flags.append(name)
            if FLAGS[name]:
                if not equals and rest:
                    value = rest.pop(0)
                _check_value(name, value)
                flags.append(value)
        elif match := OVERRIDE.match(argument):
            if match["prefix"]:
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
        elif meant := _meant(argument, syntax.keys):
            raise UsageError(
                f"{name} is not a key; did you mean {meant}? (put a sentence that begins like "
                "this after --)"
            )
        else:
            sentences.append(argument)
    if sentences and not syntax.sentences:
        raise UsageError(_unexpected(syntax, sentences[0]))
    return Arguments(
        flags=tuple(flags),
        overrides=tuple(overrides),
        verbatim={name: values[-1] for name, values in literal.items()},
        sentences=tuple(sentences),
        repeated={name: literal[name] for name in syntax.repeatable if name in literal},
    )


def _taken_literally(syntax: Syntax, name: str, value: str) -> str:
    """The value of a verbatim key, with the paths that a shell would have made of it."""
    if not value:
        kind = "TEXT" if name in syntax.texts else "PATH"
        raise UsageError(f"{name}= has no value: write {name}={kind}")
    if name in syntax.texts:
        return value
    if name not in syntax.lists:
        return at_home(value) if value.startswith("~") else value
    paths = [at_home(path.strip()) for path in paths_in(value)]
    if "" in paths:
        raise UsageError(f"{name}={value}: a path is missing between its commas")
    return ",".join(paths)


def _meant(argument: str, keys: Collection[str]) -> str:
    """The key that an argument misspells; empty where it is none."""
    match = SLIP.match(argument)
    parts = re.findall(r"[A-Za-z_]\w*", match["key"].replace("-", "_")) if match else []
    known = {*words(), *keys} if parts else set()
    near = [difflib.get_close_matches(word, known, n=1, cutoff=ALIKE) for word in parts]
    return ".".join(found[0] for found in near) if all(near) else ""


def wants_debug(arguments: Sequence[str]) -> bool:
    """Tell whether `debug=true` is an option of a command line that may be wrong."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "debug=true" in options


def _is_flag(syntax: Syntax, argument: str) -> bool:
    if not argument.startswith("-") or argument == "-" or re.search(r"\s", argument):
        return False
    name, equals, _ = argument.partition("=")
    if not syntax.composed and name in FLAGS:
        raise UsageError(f"{name} is an option of train, prepare and doctor alone")
    if name not in FLAGS or (equals and not FLAGS[name]):
        known = FLAGS if syntax.composed else {}
        hint = nearest(name, ["--help", *(flag for flag in known if flag.startswith("--"))])
        raise UsageError(
            f"{argument} is not an option{hint} (put a sentence that begins like this after --)"
        )
    return True


def _check_value(flag: str, value: str) -> None:
    """Refuse what Hydra would answer with its own usage, full of options that are none here."""
    values = FLAGS[flag]
    if values == ("FOLDER",) and value and not Path(value).is_dir():
        raise UsageError(f"{flag} {value}: there is no such folder")
    if value in values or (values[0].isupper() and value and not value.startswith("-")):
        return
    forms = " or ".join(f"{flag} {each}" for each in values)
    raise UsageError(f"{flag} {value}".rstrip() + f": write {forms}")


def _unexpected(syntax: Syntax, argument: str) -> str:
    if DELETION.fullmatch(argument):
        return f"{argument}: keys cannot be removed; set another value"
    return (
        f"{argument!r} is not KEY=VALUE, and {syntax.name} takes no sentences (see translate "
        f"{syntax.name} --help)"
    )
