"""Lists of layers that a type checker can see into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


class Stack(nn.ModuleList, Generic[Layer]):
    """An `nn.ModuleList` of one kind of layer."""

    if TYPE_CHECKING:  # PyTorch's own annotation forgets what is in the list

        def __iter__(self) -> Iterator[Layer]: ...
