"""Where sentence pairs come from: one class a kind, chosen by `data.kind`."""

from __future__ import annotations

from translate.data.pair import Pair
from translate.data.sources.base import MAIN, Source
from translate.data.sources.files import Files
from translate.data.sources.hub import Hub
from translate.data.sources.pypi import PyPI
from translate.data.sources.tables import Jsonl, Tsv
from translate.data.sources.toy import Toy

KINDS: dict[str, type[Source]] = {
    "files": Files,
    "tsv": Tsv,
    "jsonl": Jsonl,
    "hub": Hub,
    "pypi": PyPI,
    "toy": Toy,
}

__all__ = ["KINDS", "MAIN", "Pair", "Source"]
