"""Which source words were looked at before, told to the score (Tu et al. 2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class LinguisticCoverage(nn.Module):
    """Linguistic coverage (Tu et al. 2016, sections 3.1.1 and 3.2), an input of the additive score.

    e_ti = vᵀ tanh(W_Q s + W_K h_i + V C_ti)
    C_ti = (1/Φ_i) Σ_{k<t} α_ki        how far word i was translated before step t
    Φ_i  = N · sigmoid(U_f h_i)        its fertility: how many target words it stands for
    """

    def __init__(self, *, memory_size: int, attention_size: int, max_fertility: float) -> None:
        super().__init__()
        self.max_fertility = max_fertility  # N
        self.U_f = nn.Linear(memory_size, 1, bias=False)
        self.V = nn.Linear(1, attention_size, bias=False)

    def fertility(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S"]:
        """The fertility Φ of each source word, computed once a sentence."""
        # float32 at least: a half's sigmoid is 0 from -17 on, and 0 / 0 at the first step
        wide = torch.promote_types(states.dtype, torch.float32)
        with torch.autocast(states.device.type, enabled=False):
            expected = F.linear(states.to(wide), self.U_f.weight.to(wide)).squeeze(-1)
            return self.max_fertility * torch.sigmoid(expected)

    def forward(
        self,
        keys: Float[Tensor, "B S A"],
        attended: Float[Tensor, "N S"],
        fertility: Float[Tensor, "B S"],
    ) -> Float[Tensor, "N S A"]:
        """W_K h_i + V C_ti: each hypothesis's own keys, for a score that adds keys to its query."""
        sentences = fertility.shape[0]
        # not by a view of -1: a graph would keep what that says of S, which is false of 1
        by_sentence = attended.view(sentences, attended.shape[0] // sentences, attended.shape[1])
        coverage = by_sentence / fertility[:, None]  # (B, n, S)
        told = coverage[..., None] * self.V.weight[:, 0].to(coverage.dtype)  # (B, n, S, A)
        return (keys[:, None] + told).to(keys.dtype).flatten(0, 1)
