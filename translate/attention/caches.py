"""What self-attention remembers of the tokens so far, between two decoding steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class KeysValues:
    """Projected keys and values, G heads each."""

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S Kv"]

    def at(self, rows: Int[Tensor, "C"]) -> KeysValues:
        """These rows of the batch, in this order."""
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class Cache(ABC):
    """The memory of one self-attention, a row for each hypothesis."""

    @abstractmethod
    def at(self, rows: Int[Tensor, "M"]) -> Self:
        """A cache of these rows, in this order."""


class KeyValueCache(Cache):
    """The keys and values of the tokens so far: grown by doubling, written in place.

    With a `window` it is a ring: token t lies in slot t mod window, over the token that left the
    window, so that memory is constant however long the sentence grows.
    """

    def __init__(
        self,
        keys: Float[Tensor, "N G R K"],  # R: room for more than is used yet
        values: Float[Tensor, "N G R K"],
        *,
        window: int | None,
    ) -> None:
        self.keys, self.values, self.window = keys, values, window

    @classmethod
    def empty(
        cls, rows: int, heads: int, d_k: int, like: Tensor, *, window: int | None = None
    ) -> KeyValueCache:
        """A cache without tokens, with room for sixteen, or for the window if that is less."""
        shape = (rows, heads, min(16, window or 16), d_k)
        return cls(like.new_empty(shape), like.new_empty(shape), window=window)

    def append(self, new: KeysValues, length: int) -> tuple[KeysValues, Int[Tensor, "S"]]:
        """Add one token after `length` others; all that is remembered, and at which positions."""
        window = self.window or length + 1
        slot = length % window
        room = self.keys.shape[2]
        if slot == room:
            more = min(room, self.window - room) if self.window else room
            self.keys = torch.cat((self.keys, torch.empty_like(self.keys[:, :, :more])), dim=2)
            self.values = torch.cat(
                (self.values, torch.empty_like(self.values[:, :, :more])), dim=2
            )
        self.keys[:, :, slot] = new.keys[:, :, 0]
        self.values[:, :, slot] = new.values[:, :, 0]
        slots = torch.arange(min(length + 1, window), device=self.keys.device)
        used = KeysValues(self.keys[:, :, : len(slots)], self.values[:, :, : len(slots)])
        return used, length - (length - slots) % window

    def at(self, rows: Int[Tensor, "M"]) -> KeyValueCache:
        return KeyValueCache(
            self.keys.index_select(0, rows), self.values.index_select(0, rows), window=self.window
        )
