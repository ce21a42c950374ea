#!/usr/bin/env python
"""Copies code and configuration into the documents, so that what is read is what runs.

    scripts/include_code.py            # rewrites the blocks of docs/*.md
    scripts/include_code.py --check    # changes nothing; lists blocks that differ, status 1

A block follows a marker that names a file and, in it, functions or classes:

    <!-- translate/attention/masks.py: causal_mask, both -->

The fenced block after the marker is replaced, or made if there is none. A marker that names a file
of the configuration is followed by a table of its keys, their defaults and their comments:

    <!-- conf/optimizer/adamw.yaml -->

and `<!-- options of text -->` by those of a command.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

from translate.cli.commands import COMMANDS
from translate.cli.options import Group

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
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part
        ]
        if len(found) != 1:
            raise SystemExit(f"{path.name} has {len(found)} definitions of {name}, not one")
        body = found[0].body
    first = min(node.lineno for node in (found[0], *found[0].decorator_list))
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : found[0].end_lineno]))


def table_of(path: Path) -> str:
    """A row for each key of a YAML file: its full name, its default, and the comment beside it."""
    text = path.read_text(encoding="utf-8")
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    groups = path.relative_to(ROOT / "conf").parent.parts
    rows = [
        (f"`{'.'.join([*groups, name])}`", default and f"`{default}`", _as_cell(meaning))
        for name, default, meaning in _keys(node, text.splitlines())
    ]
    return _table(rows)


def table_of_options(command: str) -> str:
    """A row for each option of a command: its name, its default, and its description."""
    rows = []
    for key, field in COMMANDS[command].options.fields().items():
        if field.description is not None:
            rows.append((f"`{key}`", f"`{_default(field)}`", _as_cell(field.description)))
    return _table(rows)


def _default(field: FieldInfo) -> str:
    """An option's default as it would be typed; a group's is the option that is chosen."""
    if field.is_required():
        return next((mark.default for mark in field.metadata if isinstance(mark, Group)), "???")
    if field.default_factory is not None:  # the folder of corpora, whatever the environment says
        return "data"
    return json.dumps(field.default).strip('"')


def _table(rows: list[tuple[str, str, str]]) -> str:
    head = [("key", "default", "what it does"), ("---", "---", "---")]
    return "".join(f"| {' | '.join(row)} |\n" for row in [*head, *rows])


def _keys(
    node: yaml.MappingNode, lines: list[str], prefix: str = ""
) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        if not prefix and key.value in CHOSEN:
            continue
        name, number = prefix + key.value, key.start_mark.line
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        end = key.end_mark.column + 1 if nested else value.end_mark.column
        default = "" if nested else lines[number][key.end_mark.column + 1 : end].strip()
        comment = [lines[number][end:]]
        for line in lines[number + 1 :]:
            if not line.lstrip().startswith("#"):
                break
            comment.append(line)
        meaning = " ".join(line.strip().removeprefix("#").strip() for line in comment).strip()
        if meaning or not nested:
            yield name, default, meaning
        if nested:
            yield from _keys(value, lines, f"{name}.")


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
