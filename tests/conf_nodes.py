"""Nodes of `conf/` as Hydra composes them, without a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from translate.data.corpus import Corpus, prepare, read_nodes

CONF = Path(__file__).parents[1] / "conf"


def node(group: str, name: str, /, **changes: Any) -> dict[str, Any]:
    """An option of a group: its defaults list merged, then the changes."""
    raw = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    merged: dict[str, Any] = {}
    for default in raw.pop("defaults", []):
        merged = overlay(merged, raw if default == "_self_" else node(group, default))
    return overlay(merged or raw, changes)


def overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    both = {k for k in base.keys() & top.keys() if isinstance(base[k], dict) and top[k]}
    return base | top | {k: overlay(base[k], top[k]) for k in both}


def corpus_of(data: dict[str, Any], tokenizer: dict[str, Any], **options: Any) -> Corpus:
    """The corpus of two nodes."""
    return prepare(*read_nodes(data, tokenizer), **options)
