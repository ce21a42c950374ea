"""Guided alignment: one head of attention learns to look where given alignments say.

Chen et al. 2016 (arXiv:1607.01628), section 3; Garg et al. 2019, section 4.2. With G the gold rows
(each sums to 1, or to 0 where a word has no link), A the head's weights and M all target tokens of
the step:

    L_a = - 1/M Σ_t Σ_s G_ts log A_ts          loss = L_translation + weight · L_a
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from translate.models.head import AttentionHead, choose_head
from translate.models.seq2seq import Seq2Seq
from translate.training.settings import GuidedAlignment


@dataclass(frozen=True)
class Guidance:
    """Which head is guided, and how much its loss weighs."""

    head: AttentionHead
    weight: float

    def loss(
        self, alignment: Float[Tensor, "B L H T S"], gold: Float[Tensor, "B T S"]
    ) -> Float[Tensor, ""]:
        """M · L_a: a sum over the rows, to which padding and words without a link add nothing."""
        weights = self.head.of(alignment)
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        # a link outside of a local window has weight 0: a large loss, and nothing to learn from it
        log_weights = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        return -(gold * log_weights).sum()


def build_guidance(model: Seq2Seq, options: GuidedAlignment) -> Guidance | None:
    """What the node `trainer.guided_alignment` asks for; None where its weight is 0.

    Raises:
        UserError: the model has no such head.
    """
    if not options.weight:
        return None
    where = "trainer.guided_alignment."
    head = choose_head(model, layer=options.layer, head=options.head, where=where)
    return Guidance(head, options.weight)
