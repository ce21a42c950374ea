"""What Hydra objects to, in one line each and with the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from translate.cli.commands import key_of
from translate.cli.config_dir import config_dir, groups, is_choice, options
from translate.cli.experiments import leave_out_misfits, node_of, without_misfits
from translate.wording import nearest

Check = Callable[[Mapping[str, Any]], list[str]]

ABBREVIATED = {"lr": "learning_rate"}  # too short to be like the key that is meant


def problems(composed: DictConfig, check: Check, overrides: Sequence[str]) -> list[str]:
    """What is missing in a configuration, and what `check` finds in the rest of it."""
    missing = sorted(OmegaConf.missing_keys(composed))
    config: Any = OmegaConf.to_container(composed, resolve=True)
    found = [line for line in check(config) if line.split(" ")[0] not in missing]
    found = [f"{key} is missing: write {key}=VALUE" for key in missing] + found
    return without_misfits(found, overrides)


def explain(
    error: Exception,
    config_name: str,
    overrides: Sequence[str],
    check: Check,
    *,
    multirun: bool,
    verbatim: Sequence[str],
) -> list[str]:
    """Every override that Hydra refuses, not only the first: each is tried beside the good ones.

    What `check` has against the good ones follows. Returns the error itself in one line when no
    single override is to blame.

    Args:
        verbatim: the command's keys that Hydra does not see, which may have been meant.
    """
    found: list[str] = []
    good: list[str] = []
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        try:
            config = compose(config_name)
        except Exception:  # nothing that was given is to blame
            return [_one_line(error)]
        options_first = sorted(overrides, key=lambda o: "." in key_of(o))
        for override in options_first:  # they bring the keys
            accepted = []
            for single in _singles(override) if multirun else [override]:
                try:
                    config = compose(config_name, [*good, single])
                    accepted.append(single)
                except Exception as refusal:
                    known = [*_choices(config_name), *verbatim]
                    found.append(_reason(refusal, single, config, known))
            good += accepted[:1]
        with suppress(OmegaConfBaseException):  # a value that refers to one of the refused
            leave_out_misfits(config, good)
            found += problems(config, check, good) if found else []
    if not found and multirun:
        found = _of_a_sweep(config_name, overrides, check, verbatim)
    return found or [_one_line(error)]


def _of_a_sweep(
    config_name: str, overrides: Sequence[str], check: Check, verbatim: Sequence[str]
) -> list[str]:
    """What is wrong with the first of its jobs that cannot be composed."""
    with suppress(HydraException):
        for job in jobs_of(overrides):
            try:
                with initialize_config_dir(str(config_dir()), version_base="1.3"):
                    compose(config_name, job)
            except Exception as error:
                found = explain(error, config_name, job, check, multirun=False, verbatim=verbatim)
                return [f"with {' '.join(job)}: {line}" for line in found]
    return []


def jobs_of(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a sweep, as Hydra combines them."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return list(chain(*BasicSweeper.split_arguments(parsed, max_batch_size=None)))


def _singles(override: str) -> list[str]:
    """The overrides that one of a sweep stands for."""
    try:
        parsed = OverridesParser.create().parse_override(override)
        if not parsed.is_sweep_override():
            return [override]
        if parsed.is_interval_sweep():
            interval: Any = parsed.value()
            return [f"{parsed.get_key_element()}={end}" for end in (interval.start, interval.end)]
        return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]
    except HydraException:  # no override, or what only Hydra itself can list: glob(*)
        return [override]


def given_again(overrides: Sequence[str]) -> list[str]:
    """A line for each value that a later one of the same key takes the place of."""
    found: list[str] = []
    values: dict[str, str] = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in values:
            found.append(f"{key} is given twice: {value} takes the place of {values[key]}")
        values[key] = value
    return found


def lists_of_options(overrides: Sequence[str]) -> list[str]:
    """What speaks against lists for groups: Hydra merges them, and the last silently wins."""
    return [
        f"{single}: choose one option, not a list: {key}=OPTION, or {key}=A,B with --multirun"
        for override in filter(is_choice, overrides)
        for single in _singles(override)
        for key, _, value in [single.partition("=")]
        if value.lstrip().startswith("[")
    ]


def _reason(refusal: Exception, override: str, config: DictConfig, known: Sequence[str]) -> str:
    """Why one is refused; `known` are keys beside those of the configuration."""
    key, _, value = override.partition("=")
    if isinstance(refusal, MissingConfigException):
        group = str(refusal.missing_cfg_file or key).rpartition("/")[0]
        if group != key:  # an option names another that does not exist
            return f"{override}: {_one_line(refusal)}"
        return f"{override}: no such option{nearest(value, options(group))}"
    if isinstance(refusal, OverrideParseException):
        value = '["…", "…"]' if value.startswith("[") else '"…"'
        what = "each value" if value.startswith("[") else "the value"
        return (
            f"{override}: cannot be read ({_one_line(refusal)}); quote both {what} and the whole "
            f"argument: '{key}={value}'"
        )
    if str(refusal).startswith("Ambiguous value"):
        if is_choice(override):
            one = value.partition(",")[0]
            return (
                f"{override}: several options need --multirun; without it, choose one: {key}={one}"
            )
        return f"{override}: several values need --multirun (a list is written {key}=[{value}])"
    no_key = isinstance(refusal.__cause__, ConfigAttributeError | ConfigKeyError)
    if no_key or ("@" not in key and str(refusal).startswith("Could not override")):
        return f"{key} is not a key{_nearest_key(key, config, known)}"
    if str(refusal).startswith("Config group override must be"):
        return f"{override}: no such option{nearest(value, options(key))}"
    return f"{override}: {_one_line(refusal)}"


def _nearest_key(key: str, config: DictConfig, known: Sequence[str]) -> str:
    """What would be right in place of the first part of `key` that does not exist."""
    node: Any = OmegaConf.to_container(config)
    path, rest = [], key.split(".")
    while rest and isinstance(node, dict) and rest[0] in node:
        path.append(rest.pop(0))
        node = node[path[-1]]
    if rest and node is None:
        *names, last = rest
        whole = "".join(f"{name}: {{" for name in names) + f"{last}: VALUE" + "}" * len(names)
        parent = ".".join(path)
        return f": {parent} is null; give it whole, '{parent}={{{whole}}}'"
    if not rest or not isinstance(node, dict):
        return f": {'.'.join(path)} is a value and holds no keys"
    if found := _elsewhere(path, rest[0]):
        return f" of this {path[0]}, but one of {path[0]}={' or '.join(found)}"
    names = [*node, *([] if path else known)]
    if not path and rest[0] not in names and (others := _commands_with(rest[0])):
        return f" of this command, but of translate {', '.join(others)}"
    wanted = ABBREVIATED.get(rest[0], rest[0])
    if not path and (deeper := _deeper(wanted, names, node)):
        return f"; did you mean {_of_another_option(wanted, deeper, node) or ' or '.join(deeper)}?"
    near = difflib.get_close_matches(wanted, names, n=1)
    if not path and not near and (others := _commands_with_key(wanted)):
        return f" of this command, but of translate {', '.join(others)}"
    return nearest(wanted, names, prefix="".join(f"{part}." for part in path))


def _deeper(key: str, names: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """The keys inside a configuration that are more like this one than its own `names` are."""
    places: dict[str, list[str]] = {}
    for path in _paths(config):
        places.setdefault(path.rpartition(".")[2], []).append(path)
    (like, *_) = [*difflib.get_close_matches(key, [*names, *places], n=1), ""]
    return [] if like in names else places.get(like, [])


def _of_another_option(key: str, deeper: Sequence[str], config: Mapping[str, Any]) -> str:
    """A group's own key that the chosen option lacks: likelier meant than one deep in another."""
    if any(place.count(".") == 1 for place in deeper):
        return ""
    for group in config:
        if found := _elsewhere([group], key):
            return f"{group}.{key}, of {group}={' or '.join(found)}"
    return ""


def _paths(node: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, behind the keys above it."""
    for name, value in node.items() if isinstance(node, dict) else ():
        yield f"{prefix}{name}"
        yield from _paths(value, f"{prefix}{name}.")


def _choices(config_name: str) -> list[str]:
    """The groups a command can choose from; not all have a node of their own (`experiment`)."""
    file = config_dir() / f"{config_name}.yaml"
    if not file.is_file():
        return []
    defaults: Any = OmegaConf.to_container(OmegaConf.load(file))
    return [
        group
        for entry in defaults.get("defaults", [])
        if isinstance(entry, dict)
        for group in entry
    ]


def _commands_with(group: str) -> list[str]:
    """The commands that choose an option of a group."""
    commands = sorted(file.stem for file in config_dir().glob("*.yaml"))
    return [command for command in commands if group in _choices(command)]


def _commands_with_key(key: str) -> list[str]:
    """The commands that have a key of their own of this name."""
    files = sorted(config_dir().glob("*.yaml"))
    return [file.stem for file in files if key in OmegaConf.load(file) and key != "defaults"]


def _elsewhere(where: Sequence[str], key: str) -> list[str]:
    """Options of a group that do have the key."""
    if len(where) != 1 or where[0] not in groups():
        return []
    return [name for name in options(where[0]) if key in node_of(where[0], name)]


def _one_line(error: BaseException) -> str:
    text = str(error) or str(error.__cause__ or "") or type(error).__name__
    return text.splitlines()[0]
