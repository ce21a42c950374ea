"""The model families: each module of this package that defines a `Seq2Seq` is one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import translate.models
from translate.config import check, chosen
from translate.models.seq2seq import ModelConfig, Seq2Seq


@cache
def families() -> dict[str, type[Seq2Seq]]:
    """The class of each family; a family is called as its module."""
    classes = {}
    for info in pkgutil.iter_modules(translate.models.__path__):
        module = importlib.import_module(f"translate.models.{info.name}")
        for _, member in inspect.getmembers(module, inspect.isclass):
            defined_here = member.__module__ == module.__name__
            if defined_here and issubclass(member, Seq2Seq) and not inspect.isabstract(member):
                classes[info.name] = member
    return classes


def problems(node: Mapping[str, Any], where: str = "model") -> list[str]:
    """Return every problem of a model's options, one line each; `where` is the node's place."""
    configs = {family: model.Config for family, model in families().items()}
    return chosen(where, node, configs, key="family")


def upgraded(node: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options that came after a node was written, with the values that it means.

    A node of an unknown family is returned as it is.
    """
    family = families().get(str(node.get("family")))
    return {**(family.Config.since if family else {}), **node}


def build(
    config: ModelConfig | Mapping[str, Any], *, source_vocab_size: int, target_vocab_size: int
) -> Seq2Seq:
    """Make a new model, with random weights, from its options.

    Raises:
        UserError: the family does not exist, or its options are wrong or contradict each other.
    """
    if not isinstance(config, ModelConfig):
        check(problems(config))
        config = families()[config["family"]].Config.model_validate(dict(config))
    model: Callable[..., Seq2Seq] = families()[config.family]
    return model(config, source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)


@contextmanager
def shapes_only() -> Iterator[None]:
    """A model that is built meanwhile has names and shapes only; no random number is drawn."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """A mode that draws no weights without memory: PyTorch would load its compiler, a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0]
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)
