"""The walls of the house: imports point one way, and no room asks what it was not told."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "translate"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}

# What each room may import of ours beside itself and the foundations.
FOUNDATIONS = {
    "files", "errors", "linear", "machine", "version", "vocabulary", "config", "names",
    "run_folder", "wording", "compose", "nodes",
}  # fmt: skip
MAY_IMPORT = {
    "files": set(),
    "errors": set(),
    "linear": set(),
    "machine": set(),
    "version": set(),
    "vocabulary": set(),
    "wording": set(),
    "config": set(),
    "names": set(),
    "run_folder": set(),
    "compose": set(),
    "nodes": set(),
    "data": set(),
    "attention": set(),
    "models": {"attention"},
    "search": {"attention", "models"},
    "inference": {"attention", "models", "search", "data"},
    "evaluation": {"attention", "models", "search", "data", "inference"},
    "training": {"attention", "models", "search", "data", "inference", "evaluation"},
    "cli": {
        "attention",
        "models",
        "search",
        "data",
        "inference",
        "evaluation",
        "training",
    },
    # the porch: it may import every room, and only tables of names lead to it
    "extras": {
        "attention",
        "models",
        "search",
        "data",
        "inference",
        "evaluation",
        "training",
        "cli",
    },
}
# The package hands out `load`, `Config`, `train`, `prepare` and `evaluate`, imported when they are
# asked for; `python -m translate` starts the program.
AT_THE_TOP = {
    "__init__": {"search", "data", "inference", "evaluation", "training"},
    "__main__": {"cli"},
}

# Exceptions that may only become fewer; the goal is none.
IN_CIRCLES = 0


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def back_arrows(path: Path, tree: ast.Module) -> list[str]:
    here = room(path)
    allowed = FOUNDATIONS | {here} | MAY_IMPORT.get(here, AT_THE_TOP.get(here, set()))
    found = []
    for line, name in imported(tree):
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top == "translate" and target in ROOMS and target not in allowed:
            found.append(f"{name_of(path)}:{line}: {here} imports {name}")
    return found


def test_imports_point_one_way() -> None:
    assert [arrow for path in MODULES for arrow in back_arrows(path, parsed(path))] == []


def test_an_arrow_that_points_back_is_found() -> None:
    tree = ast.parse("def f():\n    from translate.training.step import TranslationTask")
    assert back_arrows(PACKAGE / "search" / "beam.py", tree) == [
        "translate/search/beam.py:2: search imports translate.training.step.TranslationTask"
    ]


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {room(path) for path in MODULES}
    assert rooms <= MAY_IMPORT.keys() | AT_THE_TOP.keys()


def test_only_names_in_tables_lead_to_the_porch() -> None:
    """An import of translate.extras is an arrow that points back: no room has it in its list."""
    assert all("extras" not in allowed for allowed in MAY_IMPORT.values())
    slip = ast.parse("if TYPE_CHECKING:\n    from translate.extras.toy import toy_pairs")
    assert len(back_arrows(PACKAGE / "data" / "module.py", slip)) == 1


def on_demand() -> set[str]:
    """Every `"translate.module:attribute"` of the package."""
    return {
        node.value
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"translate(\.\w+)+:\w+", node.value)
    }


@pytest.mark.parametrize("name", sorted(on_demand()))
def test_what_a_table_names_is_there(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(importlib.import_module(module), attribute)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def import_graph() -> dict[str, set[str]]:
    """Module → modules it imports, inside functions and under TYPE_CHECKING too."""
    modules = {module_name(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for _, name in imported(parsed(path)):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            graph[module] |= {name} - {"", module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules of which each reaches each other by imports."""

    @cache
    def reached(start: str) -> frozenset[str]:
        seen, new = set[str](), [start]
        while new:
            for module in graph[new.pop()] - seen:
                seen.add(module)
                new.append(module)
        return frozenset(seen)

    groups = {
        tuple(sorted(other for other in reached(module) if module in reached(other)))
        for module in graph
        if module in reached(module)
    }
    return sorted(map(list, groups))


def test_no_import_circle() -> None:
    assert circles(import_graph()) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert circles(graph) == [["b", "c"]]


def shared(names: Iterator[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_two_modules_have_one_name() -> None:
    stems = (path.stem for path in MODULES if path.stem not in ("__init__", "__main__"))
    assert not shared(stems)


def test_no_two_public_classes_have_one_name() -> None:
    classes = (
        node.name
        for path in MODULES
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not shared(classes)


def calls(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def test_nobody_asks_which_model_they_hold() -> None:
    asked = [
        f"{name_of(path)}: {ast.unparse(call)}"
        for path in MODULES
        for call in calls(parsed(path), "isinstance")
        if ast.unparse(call.args[0]).split(".")[-1].endswith("model")
    ]
    assert asked == []


def test_nothing_prints() -> None:
    printed = [
        f"{name_of(path)}:{call.lineno}"
        for path in MODULES
        for call in calls(parsed(path), "print")
    ]
    assert printed == []


def test_only_the_commands_know_hydra() -> None:
    for path in MODULES:
        if room(path) not in ("cli", "compose"):
            tops = {name.split(".")[0] for _, name in imported(parsed(path))}
            assert not tops & {"hydra", "omegaconf"}, name_of(path)
            arguments = {n.arg for n in ast.walk(parsed(path)) if isinstance(n, ast.arg)}
            assert "cfg" not in arguments, name_of(path)


def test_no_file_for_odds_and_ends() -> None:
    assert not [
        name_of(p) for p in MODULES if p.stem in {"utils", "util", "helpers", "common", "misc"}
    ]


def test_no_configuration_names_code() -> None:
    files = sorted((ROOT / "conf").rglob("*.yaml"))
    assert len(files) > 50
    assert [name_of(f) for f in files if "_target_" in f.read_text(encoding="utf-8")] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in MODULES if not ast.get_docstring(parsed(path))]
    assert [name_of(path) for path in silent if path.read_text(encoding="utf-8").strip()] == []


def test_what_loads_is_called_by_its_modules_name() -> None:
    """So that the next test sees it."""
    taken = [
        f"{name_of(path)}:{node.lineno}: {alias.name}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "torch", "yaml")
        for alias in node.names
        if alias.name in ("load", "loads", "Unpickler")
    ]
    assert taken == []


def test_nothing_is_loaded_that_could_run() -> None:
    assert [slip for path in MODULES for slip in loading(path, parsed(path))] == []


def loading(path: Path, tree: ast.Module) -> list[str]:
    """Pickle runs what it reads; so do `torch.load` without `weights_only` and Hydra's targets."""
    runs = {"pickle.load", "pickle.loads", "eval", "exec", "instantiate", "yaml.load"}
    found = [
        f"{name_of(path)}:{line}: {name}"
        for line, name in imported(tree)
        if name.split(".")[0] in {"marshal", "shelve", "dill", "cloudpickle", "joblib"}
    ]
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name, whole = ast.unparse(call.func), ast.unparse(call)
            if name in runs or (name == "torch.load" and "weights_only=True" not in whole):
                found.append(f"{name_of(path)}:{call.lineno}: {whole}")
    return found


@pytest.mark.parametrize(
    "line",
    ["import dill", "eval(text)", "pickle.load(file)", "torch.load(file)",
     "torch.load(one, weights_only=True), torch.load(other)"],
)  # fmt: skip
def test_what_could_run_is_found(line: str) -> None:
    assert len(loading(PACKAGE / "files.py", ast.parse(line))) == 1
