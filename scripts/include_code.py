#!/usr/bin/env python
"""Copies code from the source into the documents, so that what is read is what runs.

    scripts/include_code.py            # rewrites the blocks of docs/*.md
    scripts/include_code.py --check    # changes nothing; tells which blocks differ, status 1

A block follows a marker that names a file and, in it, functions or classes:

    <!-- translate/attention/masks.py: causal_mask, both -->

The fenced block after the marker is replaced, or made if there is none.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^<!-- (?P<path>\S+\.py): (?P<names>[\w., ]+) -->\n(?:\n*```python\n.*?^```\n)?",
    re.MULTILINE | re.DOTALL,
)


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


def with_code(document: str) -> str:
    """The document with every block as the source has it today."""

    def block(marker: re.Match[str]) -> str:
        path, names = marker["path"], marker["names"]
        code = "\n\n".join(source_of(ROOT / path, name.strip()) for name in names.split(","))
        return f"<!-- {path}: {names} -->\n```python\n# {path}\n{code}\n```\n"

    return BLOCK.sub(block, document)


def differing(document: str) -> list[str]:
    """The markers whose block is not what the source says."""
    return [
        f"{block['path']}: {block['names']}"
        for block in BLOCK.finditer(document)
        if with_code(block[0]) != block[0]
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
