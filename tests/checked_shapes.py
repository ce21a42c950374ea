"""Annotated types and shapes, checked at every call of a function.

jaxtyping's own import hook does so at twice the price: it looks at all arguments a second time when
the function returns, and leaves all of them unchecked where one has a hint that cannot be.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, get_type_hints

import jaxtyping
from beartype import beartype
from beartype.roar import BeartypeDecorHintException


def check_in(*packages: str) -> None:
    """Check all functions and dataclasses of these packages, none of which is imported yet."""
    sys.meta_path.insert(0, _Finder(packages))


def checked(decorated: Any) -> Any:
    """A function whose arguments are checked, and what it returns; of a dataclass, its fields."""
    if isinstance(decorated, type):
        if is_dataclass(decorated) and "__init__" in vars(decorated):
            initialise: Any = vars(decorated)["__init__"]
            with suppress(NameError):  # a class that comes later; beartype looks for it here
                hints = get_type_hints(decorated, include_extras=True)
                for name in hints.keys() & initialise.__annotations__.keys():
                    initialise.__annotations__[name] = hints[name]
            decorated.__init__ = checked(initialise)  # type: ignore[misc]
        return decorated
    typed: Callable[..., Any] | None = None

    @wraps(decorated)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal typed
        if jaxtyping.config.jaxtyping_disable:
            return decorated(*arguments, **options)
        typed = typed or _typed(decorated)
        with jaxtyping.jaxtyped("context"):  # in which a letter stands for one size
            return typed(*arguments, **options)

    return call


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """With those of its hints that can be checked: not `Self`, and no plain Protocols."""
    hints = dict(function.__annotations__)
    try:
        return beartype(function)
    except BeartypeDecorHintException:
        function.__annotations__ = {
            name: hint for name, hint in hints.items() if _can_be_checked(function, name, hint)
        }
        return beartype(function)
    finally:
        function.__annotations__ = hints


def _can_be_checked(function: Callable[..., Any], name: str, hint: Any) -> bool:
    function.__annotations__ = {name: hint}
    try:
        beartype(function)
    except BeartypeDecorHintException:
        return False
    return True


class _Loader(SourceFileLoader):
    """Loads a module as if `@checked` stood at each of its functions and classes."""

    def get_code(self, fullname: str) -> CodeType:
        # compiled anew each time: Python's cache is of the module as it is
        tree = ast.parse(self.get_data(self.path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                mark = ast.copy_location(ast.Name("_checked", ast.Load()), node)
                # around a @dataclass, but within a @property
                place = 0 if isinstance(node, ast.ClassDef) else len(node.decorator_list)
                node.decorator_list.insert(place, mark)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_checked"] = checked
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not any(f"{fullname}.".startswith(f"{package}.") for package in self._packages):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
