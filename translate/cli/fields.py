"""Kinds of values that several commands take."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field


def _names_a_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", value):
        raise ValueError("must be auto, cpu, mps, cuda or cuda:N")
    return value


Device = Annotated[str, AfterValidator(_names_a_device)]
Folder = Annotated[str, Field(min_length=1)]  # empty, it would be the one worked in
Node = dict[str, Any]  # of the configuration: the keyword arguments of one callable
