"""How well a decoder state matches each source position: the scores of Bahdanau and Luong.

scores → weights = softmax(scores) → context = Σ_i weights_i · values_i
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from translate.attention.scaled_dot_product import softmax_where


class AlignmentScore(nn.Module, ABC):
    """e(s_t, h_i) for every query s_t and source state h_i."""

    @abstractmethod
    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S A"]:
        """What the score needs of the source states: computed once a sentence."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        """The scores of each query against each key."""


class AdditiveAttention(AlignmentScore):
    """Bahdanau et al. 2015, A.1.2:  e_ti = vᵀ tanh(W_Q s_{t-1} + W_K h_i)"""

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()
        self.W_Q = nn.Linear(query_size, attention_size, bias=False)
        self.W_K = nn.Linear(memory_size, attention_size, bias=False)
        self.v = nn.Linear(attention_size, 1, bias=False)

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S A"]:
        return self.W_K(states)  # type: ignore[no-any-return]

    def forward(
        self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        pairs = self.W_Q(query)[:, :, None] + keys[:, None]  # (B, T, S, A)
        return self.v(torch.tanh(pairs)).squeeze(-1)  # type: ignore[no-any-return]


class DotAttention(AlignmentScore):
    """Luong et al. 2015, eq. 8 (dot):  e_ti = s_tᵀ h_i"""

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        return states

    def forward(
        self, query: Float[Tensor, "B T M"], keys: Float[Tensor, "B S M"]
    ) -> Float[Tensor, "B T S"]:
        return query @ keys.transpose(1, 2)


class GeneralAttention(AlignmentScore):
    """Luong et al. 2015, eq. 8 (general):  e_ti = s_tᵀ W_a h_i"""

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()
        self.W_a = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S Q"]:
        return self.W_a(states)  # type: ignore[no-any-return]

    def forward(
        self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S Q"]
    ) -> Float[Tensor, "B T S"]:
        return query @ keys.transpose(1, 2)


class ConcatAttention(AdditiveAttention):
    """Luong et al. 2015, eq. 8 (concat):  e_ti = vᵀ tanh(W_a [s_t ; h_i])

    W_a [s ; h] = W_Q s + W_K h, so it is the additive score; only the query differs (s_t).
    """


SCORES: dict[str, type[AlignmentScore]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "general": GeneralAttention,
    "concat": ConcatAttention,
}


def attend(
    scores: Float[Tensor, "B T S"],
    mask: Bool[Tensor, "B S"],
    values: Float[Tensor, "B S M"],
) -> tuple[Float[Tensor, "B T M"], Float[Tensor, "B T S"]]:
    """Context vectors and the weights that made them; padding gets exactly 0."""
    weights = softmax_where(scores, mask[:, None])
    return weights @ values, weights
