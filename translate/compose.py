"""The files of `conf/`: which options a group has, and which values an option brings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from translate.errors import UserError, first_line
from translate.names import on_demand
from translate.wording import nearest

REFERENCE = re.compile(r"\$\{[\w.]+\}")
STORED = "stored"  # the name under which a run's nodes stand beside the options of their group
# groups of which an experiment sets keys without being made for an option of them
FREE = {"optimizer", "schedule", "search"}
ENDS = frozenset({"max_steps", "max_epochs"})  # keys of `trainer` that a run is measured by
MEANT = "translate.extras.other_toolkits:meant"
MISSING = "???"  # the value of a key that a person must give


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema: `no` is a language, and 1e-3 is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML looks for it here)


for _tag, _pattern, _first in (
    ("null", r"~|null", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("!power", r"[-+]?[0-9]+[eE]\+?[0-9]{1,2}", "-+0123456789"),  # 1e3 steps are 1000
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
     "-+.0123456789"),
):  # fmt: skip
    _CoreLoader.add_implicit_resolver(
        _tag if _tag.startswith("!") else f"tag:yaml.org,2002:{_tag}",
        re.compile(f"(?:{_pattern})$"),
        list(_first),
    )


def _power_of_ten(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    digits, _, zeros = node.value.lower().partition("e")
    power: int = 10 ** int(zeros)
    return int(digits) * power


_CoreLoader.add_constructor("!power", _power_of_ten)


def yaml_value(text: str) -> Any:
    """Read a value that stands in a file of `conf/` or on a command line.

    Raises:
        yaml.YAMLError: the text is no YAML.
    """
    return _CoreLoader(text).get_single_data()


def config_dir() -> Path:
    """Return `translate/conf` in an installed wheel, `conf` beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"no configuration found beside {package}: reinstall the package")


def groups() -> list[str]:
    """Return the groups to choose an option of: the folders of `conf/`."""
    return sorted({file.parent.name for file in config_dir().glob("*/*.yaml")})


def is_choice(override: str) -> bool:
    """Tell whether an override chooses an option of a group, as `model=transformer` does."""
    return re.split("[@/]", key_of(override))[0] in groups()


def key_of(override: str) -> str:
    """Return the key that an override sets or chooses."""
    return override.partition("=")[0]


def options(group: str) -> dict[str, str]:
    """Return the options of a group, each with its description, the first comment of its file.

    `base` and `…_base` are no options: they hold what others share. Experiments are all whole.
    """
    files = sorted((config_dir() / group).glob("*.yaml"))
    whole = group == "experiment"
    return {
        file.stem: _first_comment(file)
        for file in files
        if whole or not re.search(r"(^|_)base$", file.stem)
    }


def _first_comment(file: Path) -> str:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ").strip()
    return ""


def node_of(group: str, option: str, chosen: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the values of an option: its file's over those of the options that it begins from.

    Args:
        chosen: the options of groups within it, by place: `{"again": "greedy"}` in place of the
            one that the file names (`/search@again: longer`).
    """
    values = yaml_value((config_dir() / group / f"{option}.yaml").read_text(encoding="utf-8"))
    node: dict[str, Any] = {}
    for entry in values.pop("defaults", ["_self_"]):
        if entry == "_self_":
            node = merged(node, values)
        elif isinstance(entry, str):
            node = merged(node, node_of(group, entry))
        else:  # {"/search@again": "longer"}
            ((key, name),) = entry.items()
            inner, _, place = key.removeprefix("/").partition("@")
            node = merged(node, {place: node_of(inner, (chosen or {}).get(place, name))})
    return node


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree of values over another; lists and plain values are replaced whole."""
    node = dict(below)
    for key, value in above.items():
        inner = node.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = merged(inner, value)
        node[key] = value
    return node


def filled(
    group: str, chosen: str | Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a whole node of a group, of which a program has named the option, or some keys.

    Args:
        chosen: the name of an option (`greedy`), or keys with their values. They are laid over
            `stored`; with another `kind` among them, over the option of that name.
        stored: the node that stays where nothing else is chosen.

    Raises:
        UserError: no such option, or no such key.
    """
    keys = {} if isinstance(chosen, str) else chosen
    name = chosen if isinstance(chosen, str) else keys.get("kind", stored.get("kind"))
    if name not in options(group):
        raise UserError(f"{group} = {name!r}: no such option{nearest(str(name), options(group))}")
    node = node_of(group, name)
    if keys and name == stored.get("kind"):
        node = merged(node, stored)
    for key in keys:
        if key not in node:
            raise UserError(unknown_key(f"{group}.{key}", {group: node}))
    return merged(node, keys)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full key and the value of everything in a tree of values that is no node."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def look_up(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a full key; None where there is none."""
    if key in values:
        return values[key]
    node: Any = values
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def put(values: dict[str, Any], key: str, value: Any) -> bool:
    """Set a key that is there, and tell whether it is; nodes are copied before they change."""
    if key in values:
        values[key] = value
        return True
    *path, last = key.split(".")
    node: Any = values
    for part in path:
        inner = node.get(part) if isinstance(node, dict) else None
        if not isinstance(inner, dict):
            return False
        node[part] = node = dict(inner)
    if last not in node:
        return False
    node[last] = value
    return True


def overlay(
    values: dict[str, Any],
    settings: Iterable[str],
    keys: Sequence[str] = (),
    *,
    escaped: bool = False,
) -> list[str]:
    """Set what KEY=VALUE settings say; return a line for each that cannot be.

    Args:
        keys: further names that may have been meant.
        escaped: whether `${` in a value is to survive OmegaConf.
    """
    wrong = []
    for setting in settings:
        key, _, text = setting.partition("=")
        try:
            value = yaml_value(text) if text else ""
        except yaml.YAMLError as error:
            wrong.append(unreadable(setting, error))
            continue
        if not put(values, key, literal(value) if escaped else value):
            wrong.append(unknown_key(key, values, keys))
    return wrong


def references_in(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys whose default is the value of another key, with `${search.alpha}`."""
    return [(key, value) for key, value in leaves(values) if REFERENCE.fullmatch(str(value))]


def refer(values: dict[str, Any], references: Iterable[tuple[str, str]]) -> None:
    """Give keys the values that they refer to, where they still do."""
    for key, reference in references:
        if look_up(values, key) == reference:
            put(values, key, look_up(values, reference[2:-1]))


def literal(value: Any) -> Any:
    """Escape the texts in a value: a run may come from a stranger, and OmegaConf obeys `${`."""
    if isinstance(value, Mapping):
        return {key: literal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [literal(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value


def missing(values: Mapping[str, Any]) -> list[str]:
    """Return a line for each key that a person must still give."""
    return [f"{key} is missing: write {key}=VALUE" for key, v in leaves(values) if v == MISSING]


@dataclass(frozen=True)
class Composition:
    """A configuration as it is composed of options and settings, and what is wrong in it."""

    values: dict[str, Any]
    choices: dict[str, str]  # group → the option that is chosen, by default or by name
    wrong: list[str]
    left_out: list[str]  # keys that an experiment sets for another option than the chosen one
    of_experiment: Mapping[str, Any]  # what the experiment sets


def compose(
    command: str,
    overrides: Sequence[str],
    *,
    begun: Mapping[str, Any] | None = None,
    stored: Mapping[str, Mapping[str, Any]] | None = None,
    folder: str | None = None,
    keys: Sequence[str] = (),
) -> Composition:
    """Compose the configuration of `train`, `prepare` or `doctor`.

    The later of these has precedence: the defaults of `conf/COMMAND.yaml`; the experiment; the
    configuration of a run under way; nodes of another run; options that are chosen; settings.
    Hydra composes options and experiments.

    Args:
        command: the name of the file in `conf/`.
        overrides: GROUP=OPTION and KEY=VALUE.
        begun: the configuration of a run under way, in place of the defaults.
        stored: group → the node that `GROUP=stored` chooses.
        folder: a further folder of options, Hydra's `--config-dir`.
        keys: names beside those of the configuration that may have been meant.
    """
    stored, chosen, settings, wrong = stored or {}, {}, [], []
    defaults = _default_choices(command)
    for override in overrides:
        key, _, value = override.partition("=")
        if "," in value and value[0] not in "[{'\"":
            wrong.append(_several(override))
        elif key not in defaults:
            settings.append(override)
        elif value.startswith("["):
            wrong.append(not_one_option(override))
        elif value in _known(key, folder) or (value == STORED and key in stored):
            chosen[key] = value
        elif not (value == "null" and defaults[key] is None):
            wrong.append(f"{override}: no such option{nearest(value, _known(key, folder))}")
    experiment = _experiment(chosen.get("experiment"), folder)
    left_out: list[str] = []
    if begun is None:
        by_hydra = [f"{key}={value}" for key, value in chosen.items() if value != STORED]
        try:
            values = _by_hydra(command, by_hydra, folder)
        except Exception as error:  # Hydra and OmegaConf have many
            return Composition({}, chosen, [*wrong, first_line(error)], [], experiment)
        left_out = _leave_out_misfits(values, chosen, settings, experiment)
    else:
        values = literal(begun)
        values |= {group: node_of(group, option) for group, option in chosen.items()
                   if option != STORED}  # fmt: skip
    values |= {group: literal(dict(node)) for group, node in stored.items()
               if chosen.get(group) == STORED}  # fmt: skip
    known = [*defaults, *keys]
    wrong += overlay(values, settings, known, escaped=True)
    wrong += missing(values)
    # an experiment is a choice of settings, and none itself
    wrong += _unplaced(values.pop("experiment", None))
    if "trainer" in values:
        _choose_end(values["trainer"], set(map(key_of, settings)), experiment)
    try:
        values = _resolved(values)
    except Exception as error:
        wrong.append(first_line(error))
    choices = {key: str(value) for key, value in (defaults | chosen).items() if value is not None}
    return Composition(values, choices, wrong, left_out, experiment)


def _default_choices(command: str) -> dict[str, str | None]:
    """Return the groups of a command, each with the option that is the default."""
    values = yaml_value((config_dir() / f"{command}.yaml").read_text(encoding="utf-8"))
    entries = [entry for entry in values["defaults"] if isinstance(entry, Mapping)]
    return {group: option for entry in entries for group, option in entry.items()}


def _known(group: str, folder: str | None) -> list[str]:
    """Return the options of a group, those of a further folder included."""
    files = Path(folder, group).glob("*.yaml") if folder else ()
    return [*options(group), *sorted(file.stem for file in files)]


def not_one_option(override: str) -> str:
    """Return the line about a list of options, of which Hydra would let the last one win."""
    key = key_of(override)
    return f"{override}: choose one option, not a list: {key}=OPTION, or {key}=A,B with --multirun"


def _several(override: str) -> str:
    key, _, value = override.partition("=")
    if is_choice(override):
        one = value.partition(",")[0]
        return f"{override}: several options need --multirun; without it, choose one: {key}={one}"
    return f"{override}: several values need --multirun (a list is written {key}=[{value}])"


def _by_hydra(command: str, choices: Sequence[str], folder: str | None) -> dict[str, Any]:
    """Compose the options that are chosen; interpolations stay."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    if GlobalHydra.instance().is_initialized():  # in a sweep, which knows the folder
        composed = hydra.compose(command, list(choices))
    else:
        further = [f"hydra.searchpath=[file://{Path(folder).absolute()}]"] if folder else []
        with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
            composed = hydra.compose(command, [*choices, *further])
    values: Any = OmegaConf.to_container(composed)
    return dict(values)


def _resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    from omegaconf import OmegaConf

    resolved: Any = OmegaConf.to_container(OmegaConf.create(dict(values)), resolve=True)
    return dict(resolved)


def _experiment(name: str | None, folder: str | None) -> dict[str, Any]:
    """Return what an experiment's file sets, with what it takes over from another experiment."""
    for place in [str(config_dir())] if folder is None else [folder, str(config_dir())]:
        if name and (file := Path(place, "experiment", f"{name}.yaml")).is_file():
            values = yaml_value(file.read_text(encoding="utf-8")) or {}
            defaults: list[Any] = []
            inherited: dict[str, Any] = {}
            for entry in values.get("defaults", []):
                if isinstance(entry, str) and entry != "_self_":
                    other = _experiment(entry.removeprefix("/experiment/"), folder)
                    defaults += other.get("defaults", [])
                    inherited = merged(inherited, other)
            return merged(inherited, values) | {
                "defaults": [*defaults, *values.get("defaults", [])]
            }
    return {}


def _leave_out_misfits(
    values: dict[str, Any],
    chosen: Mapping[str, str],
    settings: Sequence[str],
    experiment: Mapping[str, Any],
) -> list[str]:
    """Undo what an experiment sets for another option than the one that is chosen beside it.

    Those are the keys that the option lacks; and the learning rate, which says nothing to another
    optimizer. The command line has the last word, and there it cannot remove a key.
    """
    typed, left_out = set(map(key_of, settings)), []
    for group in FREE & experiment.keys() & chosen.keys():
        node, keys = node_of(group, chosen[group]), experiment[group].keys()
        misfits = keys - node.keys()
        meant = node_of(group, option_of(experiment, group))
        if "learning_rate" in keys and node["kind"] != meant["kind"]:
            misfits.add("learning_rate")
        for key in misfits - {key.removeprefix(f"{group}.") for key in typed}:
            del values[group][key]
            if key in node:
                values[group][key] = node[key]
            left_out.append(f"{group}.{key}")
    return sorted(left_out)


def _unplaced(node: Any) -> list[str]:
    """Return the problems of an experiment's file whose keys would all be left unread."""
    return [
        f"experiment.{key} is not a key: begin the experiment's file with the line "
        f"`# @package _global_`, so that it sets {key}"
        for key in (node if isinstance(node, Mapping) else ())
    ]


def _choose_end(
    trainer: dict[str, Any], typed: Collection[str], experiment: Mapping[str, Any]
) -> None:
    """Let a key of ENDS that is typed, or else one that the experiment sets, replace the other."""
    for keys in (
        {key.removeprefix("trainer.") for key in typed},
        experiment.get("trainer", {}).keys(),
    ):
        if ends := {end for end in ENDS & keys if trainer[end] is not None}:
            trainer |= dict.fromkeys(ENDS - ends)
            return


def without_misfits(problems: Sequence[str], composition: Composition) -> list[str]:
    """Return the problems, with those of an experiment for another model in one line."""
    of_experiment, choices = composition.of_experiment, composition.choices
    unknown = {line.split(" ")[0] for line in problems if " is not a key" in line}
    misfits = [
        f"model.{key}" for key in of_experiment.get("model", {}) if f"model.{key}" in unknown
    ]
    meant = option_of(of_experiment, "model")
    if not misfits or meant == choices["model"]:
        return list(problems)
    return [
        f"experiment={choices['experiment']} is for model={meant}, and model={choices['model']} "
        f"has no {', '.join(misfits)}: choose another experiment, or leave out model=",
        *(line for line in problems if line.split(" ")[0] not in misfits),
    ]


def option_of(experiment: Mapping[str, Any], group: str) -> str:
    """Return the option of a group that an experiment chooses, else the default."""
    entries = [entry for entry in experiment.get("defaults", []) if isinstance(entry, Mapping)]
    chosen = {key: option for entry in entries for key, option in entry.items()}
    return str(chosen.get(f"override /{group}") or _default_choices("train")[group])


def unknown_key(key: str, config: Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """Return the line about a key that a configuration lacks, with what would be right.

    Args:
        known: keys beside those of the configuration.
    """
    node: Any = config
    path, rest = [], key.split(".")
    while rest and isinstance(node, Mapping) and rest[0] in node:
        path.append(rest.pop(0))
        node = node[path[-1]]
    place = ".".join(path)
    if not rest or not isinstance(node, Mapping):
        return f"{key} is not a key: {place} holds none; give it whole, as {place}=VALUE"
    if place in groups() and (owners := _options_with(place, rest[0])):
        return f"{key} is not a key of this {place}, but one of {place}={' or '.join(owners)}"
    if setting := on_demand(MEANT)(key, {*config, *known}):
        return f"{key} is another toolkit's name: write {setting}"
    wanted, names = rest[0], [*node, *([] if path else known)]
    if not path:
        inner = [full for full, _ in leaves(config) if "." in full]
        last_parts = [full.rpartition(".")[2] for full in inner]
        like = difflib.get_close_matches(wanted, [*names, *last_parts], n=1)
        if like and like[0] not in names:
            deeper = [full for full in inner if full.endswith(f".{like[0]}")]
            return f"{key} is not a key; did you mean {' or '.join(deeper)}?"
    return f"{key} is not a key{nearest(wanted, names, prefix=f'{place}.' if path else '')}"


def _options_with(group: str, key: str) -> list[str]:
    """Return the options of a group that have the key."""
    return [name for name in options(group) if key in node_of(group, name)]


def unreadable(override: str, error: Exception) -> str:
    """Return the line about an override whose value cannot be parsed."""
    key, _, value = override.partition("=")
    quoted = '["…", "…"]' if value.startswith("[") else '"…"'
    return f"{override}: cannot be read ({first_line(error)}); quote it: '{key}={quoted}'"
