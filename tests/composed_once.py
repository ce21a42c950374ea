"""Hydra, which does not do again what it has done: a sixth of the time of all tests went there.

A file is parsed once, and the same choices are merged once, whatever values are set in them. No
test may give an option's file other contents after it has been chosen: it would get the old ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def composed_once() -> Iterator[None]:
    """Within it, Hydra hands out copies of what it made before."""
    from hydra._internal import defaults_list
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    merge = ConfigLoaderImpl._compose_config_from_defaults_list
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", staticmethod(_once(OmegaConf.load, _text)))
        patch.setattr(ConfigLoaderImpl, merge.__name__, _once(merge, _choices))
        patch.setattr(ConfigStore, "load", _once(ConfigStore.load, _unchanging))
        patch.setattr(ConfigStore, "__deepcopy__", _itself, raising=False)
        names = defaults_list._create_interpolation_map
        patch.setattr(defaults_list, names.__name__, _where_asked_for(names))
        yield


def _once(function: Callable[..., Any], of: Callable[..., str | None]) -> Callable[..., Any]:
    """Copies of what it has returned for the same; `of` says what that is, None: do not ask."""
    kept: dict[str, bytes] = {}

    def call(*arguments: Any, **options: Any) -> Any:
        key = of(*arguments, **options)
        if key is None:
            return function(*arguments, **options)
        if key not in kept:
            kept[key] = pickle.dumps(function(*arguments, **options))
        return pickle.loads(kept[key])  # an eighth of the time of a deep copy

    return call


def _text(file: Any) -> str:
    return Path(file if isinstance(file, Path) else file.name).read_text(encoding="utf-8")


def _is_a_runs_own(path: str) -> bool:
    """Whether it names a node that is in no file, and another in each run."""
    from translate.compose import STORED

    return path.removesuffix(".yaml").endswith(STORED)


def _choices(loader: Any, defaults: list[Any], repo: Any) -> str:
    from hydra.core.config_store import ConfigStore

    store, paths = ConfigStore.instance(), [f"{default.config_path}" for default in defaults]
    own = [store._open(f"{path}.yaml").node for path in paths if _is_a_runs_own(path)]
    return f"{defaults} {[source.path for source in repo.get_sources()]} {own}"


def _unchanging(store: Any, config_path: str) -> str | None:
    return None if _is_a_runs_own(config_path) else config_path


def _itself(store: Any, memo: Any) -> Any:
    """A store is copied to be read, and what is read of it is copied again."""
    return store


def _where_asked_for(names: Callable[..., Any]) -> Callable[..., Any]:
    """What each group is set to, for those options that have `${` in their names; we have none."""

    def call(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        asked = any(default.is_interpolation() for default in defaults)
        return names(overrides, defaults, self_added) if asked else None

    return call
