"""translate models: what can be chosen."""

from __future__ import annotations

import sys
from typing import ClassVar

from pydantic import Field

from translate.cli.options import Options
from translate.compose import groups, options
from translate.errors import UsageError
from translate.wording import nearest

USAGE = """\
  translate models                # every group
  translate models group=model    # one of them

Each line is GROUP=OPTION, as translate train takes it: translate train model=rnn_luong data=toy.
To see what an option sets: translate train model=rnn_luong --help
"""

ORDER = [
    "experiment", "data", "tokenizer", "model", "search", "guard", "optimizer", "schedule",
    "trainer",
]  # fmt: skip


class ModelsOptions(Options):
    """The options of `translate models`."""

    usage: ClassVar[str] = USAGE

    group: str | None = Field(
        None,
        description="model, data, tokenizer, search, guard, optimizer, schedule, trainer or "
        "experiment; null: all",
    )


def run(options: ModelsOptions) -> None:
    """List one group, or all."""
    group = options.group
    known = sorted(groups(), key=lambda g: (ORDER.index(g) if g in ORDER else len(ORDER), g))
    if group is not None and group not in known:
        raise UsageError(f"group = {group!r}: no such group{nearest(str(group), known)}")
    blocks = [_block(name) for name in known if group in (None, name)]
    sys.stdout.write("\n\n".join(filter(None, blocks)) + "\n")


def _block(group: str) -> str:
    chosen = {f"{group}={option}": text for option, text in options(group).items()}
    width = max(map(len, chosen), default=0)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in chosen.items())
