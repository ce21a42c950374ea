"""Documents and docstrings call the scripts with arguments that these take."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
TEXTS = [
    *(path.read_text(encoding="utf-8") for path in DOCUMENTS),
    *(ast.get_docstring(ast.parse(path.read_bytes())) or "" for path in ROOT.glob("scripts/*.py")),
]


class ParsedError(Exception):
    """The arguments are taken."""


def calls(text: str) -> list[str]:
    r"""The lines that call a script. One that ends with \ goes on with the next; … is elided."""
    text = re.sub(r"\\\n\s*", "", text).replace("--peer …", "--peer 'a=…'").replace(" …", "")
    return re.findall(r"^ +(?:python )?scripts/(\w+\.py\b.*?)(?: +#.*)?$", text, re.MULTILINE)


@pytest.mark.parametrize("line", sorted({line for text in TEXTS for line in calls(text)}))
def test_every_call_has_the_arguments_of_the_script(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    script, *arguments = shlex.split(line)
    main = load_script(script.removesuffix(".py")).main

    def stopping(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsed(*given: Any, **options: Any) -> None:
            parse(*given, **options)
            raise ParsedError

        return parsed

    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("parse_args", "parse_intermixed_args"):
        parse = getattr(argparse.ArgumentParser, name)
        monkeypatch.setattr(argparse.ArgumentParser, name, stopping(parse))
    with pytest.raises(ParsedError):
        main()
