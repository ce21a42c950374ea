"""Where the YAML files are and what they offer."""

from __future__ import annotations

import re
from pathlib import Path

from translate.cli.commands import key_of
from translate.errors import UserError

STORED = "stored"  # the name under which a run's own nodes stand beside the options of their group


def config_dir() -> Path:
    """`translate/conf` in an installed wheel, `conf` beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"no configuration found beside {package}: reinstall the package")


def groups() -> list[str]:
    """What can be chosen between: the folders of options."""
    return sorted({file.parent.name for file in config_dir().glob("*/*.yaml")})


def is_choice(override: str) -> bool:
    """Whether an override chooses an option of a group, as `model=transformer` does."""
    return re.split("[@/]", key_of(override))[0] in groups()


def names() -> set[str]:
    """Every word of which keys are made."""
    files = (file.read_text(encoding="utf-8") for file in config_dir().rglob("*.yaml"))
    return {*groups(), *(name for text in files for name in re.findall(r"(?m)^ *(\w+):", text))}


def options(group: str) -> dict[str, str]:
    """Option → its description, the first comment of its file.

    `base` and `…_base` are no options: they hold what others share. Experiments are all whole.
    """
    files = sorted((config_dir() / group).glob("*.yaml"))
    whole = group == "experiment"
    return {
        file.stem: _first_comment(file)
        for file in files
        if whole or not re.search(r"(^|_)base$", file.stem)
    }


def _first_comment(file: Path) -> str:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ").strip()
    return ""
