#!/usr/bin/env python
"""Writes docs/api.md, the Python interface, from signatures and docstrings (read by griffe).

scripts/api_page.py            # rewrites the page
scripts/api_page.py --check    # changes nothing; status 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
# heading → (name as a caller writes it, place in the package, methods that are shown)
SHOWN: dict[str, list[tuple[str, str, list[str]]]] = {
    "Functions": [
        (f"translate.{name}", name, []) for name in ("load", "train", "prepare", "evaluate")
    ],
    "Classes": [
        (
            "Translator",
            "inference.translator.Translator",
            ["translate", "stream", "check", "score", "align", "self_attention"],
        ),
        ("translate.Config", "training.settings.TrainingConfig", ["load", "dump"]),
    ],
    "Further keywords": [
        ("translate.inference.translator.load", "inference.translator.load", []),
        ("translate.evaluation.judging.evaluate", "evaluation.judging.evaluate", []),
    ],
    "Answers": [
        ("Translation", "inference.translation.Translation", []),
        ("Score", "inference.translation.Score", []),
        ("AttentionMap", "inference.translation.AttentionMap", []),
        ("TextConstraint", "inference.text_constraints.TextConstraint", []),
        ("Report", "evaluation.report.Report", []),
    ],
}
HEAD = """\
# The Python interface

Made of signatures and docstrings by [`scripts/api_page.py`](../scripts/api_page.py).
[python.md](python.md) has examples.
"""
TITLES = {"parameters": "Arguments", "attributes": "Attributes", "raises": "Raises"}


def page() -> str:
    """The whole page."""
    package = griffe.load("translate", search_paths=[ROOT], docstring_parser="google")
    blocks = [HEAD]
    for heading, entries in SHOWN.items():
        blocks.append(f"## {heading}\n")
        for name, place, methods in entries:
            thing = package[place]
            blocks += described(name, thing, level=3)
            for method in methods:
                blocks += described(method, thing[method], level=4)
    return "\n".join(blocks)


def described(name: str, thing: griffe.Object, *, level: int) -> Iterator[str]:
    """The blocks of one function or class: heading, signature and the parts of its docstring."""
    yield f"{'#' * level} `{name}`\n"
    yield f"```python\n{signature(thing, name)}\n```\n"
    if thing.docstring is None:
        return
    for section in thing.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.text:
            yield f"{escaped(section.value)}\n"
        elif title := TITLES.get(section.kind.value):
            yield f"{title}:\n"
            yield "\n".join(map(item, section.value)) + "\n"


def item(element: griffe.DocstringNamedElement | griffe.DocstringRaise) -> str:
    """A line of a list: the name of an argument or of an error, and what it means."""
    name = getattr(element, "name", None) or element.annotation
    return f"- `{name}`: {escaped(' '.join(element.description.split()))}"


def escaped(text: str) -> str:
    """A text whose <unk> is no HTML, but for what stands between backquotes."""
    return re.sub(r"`[^`]*`|<", lambda part: part[0] if part[0] != "<" else r"\<", text)


def signature(thing: griffe.Object, name: str) -> str:
    """The call of a function, a class's fields where it has no constructor of its own."""
    name = name.rpartition(".")[2]
    constructor = thing.members.get("__init__") if thing.is_class else thing
    if constructor is None:
        fields = [
            f"    {field.name}: {without_marks(str(field.annotation))}"
            for field in thing.all_members.values()
            if field.is_attribute
            and "property" not in field.labels
            and field.annotation
            and field.name != "place"
        ]
        return "\n".join([f"class {name}:", *fields])
    parameters, starred = [], False
    for parameter in constructor.parameters:
        if parameter.name in ("self", "cls"):
            continue
        keyword_only = parameter.kind is griffe.ParameterKind.keyword_only
        if keyword_only and not starred:
            parameters.append("*")
            starred = True
        stars = {"variadic positional": "*", "variadic keyword": "**"}
        text = f"{stars.get(parameter.kind.value, '')}{parameter.name}: {parameter.annotation}"
        if parameter.default is not None and not text.startswith("*"):
            text += f" = {parameter.default}"
        parameters.append(text)
    returns = f" -> {constructor.returns}" if thing.is_function and constructor.returns else ""
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in parameters), f"){returns}"])


def without_marks(annotation: str) -> str:
    """The type of a field, without what pydantic is told beside it."""
    marked = re.match(r"Annotated\[(?:SerializeAsAny\[)?(\w+)", annotation)
    return marked[1] if marked else annotation


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check, new = parser.parse_args().check, page()
    if check:
        old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
