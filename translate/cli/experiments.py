"""What an experiment sets, and what of it does not fit the options chosen beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from translate.cli.config_dir import STORED, options

FREE = ("optimizer", "schedule", "search")  # what an experiment sets, but is not made for


def leave_out_misfits(composed: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Undo what an experiment sets for another option than the one that is chosen beside it.

    The keys that the option lacks; and the learning rate, which says nothing to another optimizer.
    The command line has the last word, and there it cannot remove a key.
    """
    chosen = _chosen(overrides)
    name = chosen.get("experiment", "")
    set_by_it = _experiment(name)
    left_out = []
    for group in FREE:
        if (option := chosen.get(group)) not in options(group):
            continue
        node, given = node_of(group, option), set_by_it.get(group, {}).keys()
        misfits = given - node.keys()
        if (
            "learning_rate" in given
            and node.kind != compose("train", [f"experiment={name}"])[group].kind
        ):
            misfits.add("learning_rate")
        for key in misfits:
            if f"{group}.{key}" not in chosen:
                with open_dict(composed[group]):
                    del composed[group][key]
                    if key in node:
                        composed[group][key] = node[key]
                left_out.append(f"{group}.{key}")
    return sorted(left_out)


def set_by_experiment(overrides: Sequence[str], group: str) -> dict[str, Any]:
    """What the experiment that is chosen, if one is, sets in a group."""
    return dict(_experiment(_chosen(overrides).get("experiment", "")).get(group, {}))


def _chosen(overrides: Sequence[str]) -> dict[str, str]:
    """The value of each key; the last one, where it is given again."""
    return dict(override.split("=", 1) for override in overrides)


def without_misfits(found: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """These problems; the keys that an experiment gives to a model it is not for told in one."""
    chosen = _chosen(overrides)
    experiment, model = (chosen.get(group, "") for group in ("experiment", "model"))
    if experiment not in options("experiment") or model not in {STORED, *options("model")}:
        return list(found)  # one is not chosen, or of a folder of the user's own
    meant, keys = _model_of(experiment)
    misfits = [line for line in found if line.split(" ")[0] in keys and " is not a key" in line]
    if meant == model or not misfits:
        return list(found)
    family = node_of("model", model).get("family")
    others = [
        name
        for name in options("experiment")
        if node_of("model", _model_of(name)[0]).get("family") == family
    ]
    instead = f"; experiments for such a model: {', '.join(others)}" if others else ""
    wrong = ", ".join(line.split(" ")[0] for line in misfits)
    named = "the network of init=" if model == STORED else f"model={model}"
    return [
        f"experiment={experiment} is for model={meant}, and {named} has no {wrong}{instead}",
        *(line for line in found if line not in misfits),
    ]


def _experiment(name: str) -> dict[str, Any]:
    """What an experiment's file sets, the program's own or one of --config-dir; {} if none.

    With what it takes over from another experiment.
    """
    folders = GlobalHydra.instance().config_loader().get_search_path().get_path()
    for folder in (str(each.path).removeprefix("file://") for each in folders):
        if (file := Path(folder, "experiment", f"{name}.yaml")).is_file():
            own: Any = OmegaConf.to_container(OmegaConf.load(file)) or {}
            defaults = own.get("defaults", [])
            others = [
                _experiment(entry.removeprefix("/experiment/"))
                for entry in defaults
                if isinstance(entry, str) and entry != "_self_"
            ]
            merged: Any = OmegaConf.to_container(OmegaConf.merge({}, *others, own))
            inherited = chain.from_iterable(other.get("defaults", []) for other in others)
            return {**merged, "defaults": [*inherited, *defaults]}
    return {}


def _model_of(experiment: str) -> tuple[str, list[str]]:
    """The model that an experiment is for, and the keys of it that it sets."""
    node = _experiment(experiment)
    entries = (entry for entry in node["defaults"] if isinstance(entry, dict))
    chosen = {key: option for entry in entries for key, option in entry.items()}
    return chosen["override /model"], [f"model.{key}" for key in node.get("model", {})]


def node_of(group: str, option: str) -> DictConfig:
    """What an option of a group holds."""
    return compose(overrides=[f"+{group}={option}"])[group]  # type: ignore[no-any-return]
