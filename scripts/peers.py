"""Other toolkits beside ours: any command whose last line is JSON with its figures."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence

from translate.errors import UserError


def named_command(text: str) -> tuple[str, str]:
    """Name and command of `--peer NAME=COMMAND`."""
    name, _, command = text.partition("=")
    if not name or not command:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=COMMAND")
    return name, command


def figures_of(command: str, needed: Sequence[str], known: Sequence[str]) -> list[float]:
    """The figures of these names that a peer prints, NaN for what of `known` it does not know.

    Raises:
        UserError: it prints no such figures.
    """
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout.splitlines()[-1])
        return [
            *(float(said[key]) for key in needed),
            *(float(said.get(key, "nan")) for key in known),
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise UserError(
            f"no {', '.join(needed)} from: {command}\n{done.stdout[-500:]}{done.stderr[-1500:]}"
        ) from None
