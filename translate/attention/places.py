"""Where the hypotheses that a step reads stand among the places of their beams."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """The places of a batch, n a sentence, and the R of them that a step reads.

    Beams are as wide as the widest, so those where hypotheses have ended have empty places. What
    concerns a hypothesis alone, all products with weights above all, is computed in `rows` of those
    that are read; attention, where the hypotheses of a sentence meet the same keys, in places.
    """

    sentences: int
    beam: int
    read: Int[Tensor, "R"] | None  # the place of each row; None: row i is place i
    rows_at: Int[Tensor, "N"] | None  # the row of each place, any for those that are not read

    @classmethod
    def of(cls, sentences: int, beam: int, read: Int[Tensor, "R"] | None = None) -> Places:
        """All places, or those that are `read`."""
        if read is None:
            return cls(sentences, beam, None, None)
        rows_at = read.new_zeros(sentences * beam)
        rows_at[read] = torch.arange(len(read), device=read.device)
        return cls(sentences, beam, read, rows_at)

    def rows(self, x: Shaped[Tensor, "B n *rest"]) -> Shaped[Tensor, "R *rest"]:
        """What stands in the places that are read."""
        every = x.flatten(0, 1)
        return every if self.read is None else every.index_select(0, self.read)

    def spread(self, x: Shaped[Tensor, "R *rest"]) -> Shaped[Tensor, "B n *rest"]:
        """Each row in its place; what stands in the others means nothing."""
        every = x if self.rows_at is None else x.index_select(0, self.rows_at)
        return every.view(self.sentences, self.beam, *x.shape[1:])
