"""Where the hypotheses that a step reads stand among the places of their beams."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """The places of a batch, n a sentence, and the R `live` ones, which a step reads.

    Beams are as wide as the widest, so those where hypotheses have ended have empty places. What
    concerns a hypothesis alone, all products with weights above all, is computed in rows of the
    live ones; attention, where the hypotheses of a sentence meet the same keys, in places.
    """

    sentences: int
    beam: int
    live: Int[Tensor, "R"] | None  # the place of each row; None: row i is place i
    rows_at: Int[Tensor, "N"] | None  # the row of each place, any for those that are not live

    @classmethod
    def of(cls, sentences: int, beam: int, live: Int[Tensor, "R"] | None = None) -> Places:
        """All places, or those that are `live`."""
        if live is None:
            return cls(sentences, beam, None, None)
        rows_at = live.new_zeros(sentences * beam)
        rows_at[live] = torch.arange(len(live), device=live.device)
        return cls(sentences, beam, live, rows_at)

    def rows(self, x: Shaped[Tensor, "B n *rest"]) -> Shaped[Tensor, "R *rest"]:
        """What stands in the live places."""
        every = x.flatten(0, 1)
        return every if self.live is None else every.index_select(0, self.live)

    def spread(self, x: Shaped[Tensor, "R *rest"]) -> Shaped[Tensor, "B n *rest"]:
        """Each row in its place; what stands in the others means nothing."""
        every = x if self.rows_at is None else x.index_select(0, self.rows_at)
        return every.view(self.sentences, self.beam, *x.shape[1:])
