#!/usr/bin/env python
"""Copies code and configuration into the documents, so that what is read is what runs.

    scripts/include_code.py            # rewrites the blocks of docs/*.md
    scripts/include_code.py --check    # changes nothing; lists blocks that differ, status 1

A block follows a marker that names a file and, in it, functions or classes:

    <!-- translate/attention/masks.py: causal_mask, both -->

The fenced block after the marker is replaced, or made if there is none. A marker that names a file
of the configuration is followed by a table of its keys in their order, with the defaults of that
file and the descriptions of the fields that read them:

    <!-- conf/optimizer/adamw.yaml -->

and `<!-- options of text -->` by those of a command.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

from translate.cli.main import COMMANDS
from translate.cli.options import Group, marks_of
from translate.compose import options, yaml_value
from translate.nodes import NODES, descriptions

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^<!-- (?P<path>\S+\.py): (?P<names>[\w., ]+) -->\n(?:\n*```python\n.*?^```\n)?"
    r"|^<!-- (?P<conf>conf/\S+\.yaml|options of \w+) -->\n(?:\n*(?:^\|[^\n]*\n)+)?",
    re.MULTILINE | re.DOTALL,
)
CHOSEN = {"defaults", "kind", "family"}  # not by a key: GROUP=OPTION chooses them


def source_of(path: Path, name: str) -> str:
    """The text of `function` or `Class.method` in a file, decorators included."""
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    for part in name.split("."):
        definitions = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part
        ]
        if len(definitions) != 1:
            raise SystemExit(f"{path.name} has {len(definitions)} definitions of {name}, not one")
        body = definitions[0].body
    first = min(node.lineno for node in (definitions[0], *definitions[0].decorator_list))
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : definitions[0].end_lineno]))


def table_of(path: Path) -> str:
    """A row for each key of a YAML file: its full name, its default, and its description."""
    text = path.read_text(encoding="utf-8")
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    place = ".".join(path.relative_to(ROOT / "conf").parent.parts)
    meanings = meanings_of(place, path.stem)
    rows = [
        (f"`{name}`", default and f"`{default}`", _as_cell(meaning))
        for name, default, meaning in _keys(node, text.splitlines(), place, meanings, CHOSEN)
    ]
    return _table(rows)


def meanings_of(group: str, option: str) -> dict[str, str] | None:
    """The descriptions of the keys of an option, or of a command; None where Hydra reads them."""
    if not group:
        fields = COMMANDS[option].options.fields()
        return {key: field.description or "" for key, field in fields.items()}
    if group not in NODES:
        return None
    # base.yaml has no kind of its own: the class of an option that begins from it has its keys
    names = [option] if option in options(group) else [*begun_from(group, option)]
    meanings: dict[str, str] = {}
    for key, _, meaning in descriptions(group, names[0]):
        meanings.setdefault(key, meaning)
    return meanings


def begun_from(group: str, base: str) -> Iterator[str]:
    """The options of a group whose file begins from another, or from one that begins from it."""
    for option in options(group):
        names = [option]
        while names and base not in names:
            file = ROOT / "conf" / group / f"{names[-1]}.yaml"
            above = yaml_value(file.read_text(encoding="utf-8")).get("defaults", [])
            names = [name for name in above if isinstance(name, str) and name != "_self_"]
        if names:
            yield option


def table_of_options(command: str) -> str:
    """A row for each option of a command: its name, its default, and its description."""
    rows = []
    for key, field in COMMANDS[command].options.fields().items():
        if field.description is not None:
            rows.append((f"`{key}`", f"`{_default(field)}`", _as_cell(field.description)))
    return _table(rows)


def _default(field: FieldInfo) -> str:
    """An option's default as it would be typed; a group's is the option that is chosen."""
    for mark in marks_of(field):
        if isinstance(mark, Group):
            return mark.default
    if field.is_required():
        return "???"
    if field.default_factory is not None:  # the folder of corpora, whatever the environment says
        return "data"
    return json.dumps(field.default).strip('"')


def _table(rows: list[tuple[str, str, str]]) -> str:
    head = [("key", "default", "what it does"), ("---", "---", "---")]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*head, *rows])


def _keys(
    node: yaml.MappingNode,
    lines: list[str],
    place: str,
    meanings: dict[str, str] | None,
    left_out: Collection[str] = (),
) -> Iterator[tuple[str, str, str]]:
    """Yield full name, default and description of each key; comments describe where none do."""
    for key, value in node.value:
        if key.value in left_out:
            continue
        name = f"{place}.{key.value}".removeprefix(".")
        number = key.start_mark.line
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        end = key.end_mark.column + 1 if nested else value.end_mark.column
        default = "" if nested else lines[number][key.end_mark.column + 1 : end].strip()
        meaning = _comment(lines, number, end) if meanings is None else meanings.get(name, "")
        if meaning or not nested:
            yield name, default, meaning
        if nested:
            yield from _keys(value, lines, name, meanings)


def _comment(lines: list[str], number: int, end: int) -> str:
    """The comment beside a key, which goes on below it."""
    below = itertools.takewhile(lambda line: line.lstrip().startswith("#"), lines[number + 1 :])
    parts = [lines[number][end:], *below]
    return " ".join(line.strip().removeprefix("#").strip() for line in parts).strip()


def _as_cell(text: str) -> str:
    """What Markdown would take for marks of its own stands for itself."""
    return re.sub(r"[\\|<*]", r"\\\g<0>", text)


def _block(marker: re.Match[str]) -> str:
    """A marker with what belongs after it."""
    if marker["conf"] and marker["conf"].startswith("options of "):
        return f"<!-- {marker['conf']} -->\n\n{table_of_options(marker['conf'].split()[-1])}"
    if marker["conf"]:
        return f"<!-- {marker['conf']} -->\n\n{table_of(ROOT / marker['conf'])}"
    path, names = marker["path"], marker["names"]
    code = "\n\n".join(source_of(ROOT / path, name.strip()) for name in names.split(","))
    return f"<!-- {path}: {names} -->\n```python\n# {path}\n{code}\n```\n"


def with_code(document: str) -> str:
    """The document with every block as the source has it today."""
    return BLOCK.sub(_block, document)


def differing(document: str) -> list[str]:
    """The markers whose block is not what the source says."""
    return [
        block["conf"] or f"{block['path']}: {block['names']}"
        for block in BLOCK.finditer(document)
        if _block(block) != block[0]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    status = 0
    for path in sorted((ROOT / "docs").rglob("*.md")):
        document = path.read_text(encoding="utf-8")
        for marker in differing(document):
            print(f"{path.relative_to(ROOT)}: {marker}")
            status = int(check)
        if not check:
            path.write_text(with_code(document), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
