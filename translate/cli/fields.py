"""Kinds of values that several commands take."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]
Folder = Annotated[str, Field(min_length=1)]  # empty, it would be the one worked in
Node = dict[str, Any]  # of the configuration: the keyword arguments of one callable
