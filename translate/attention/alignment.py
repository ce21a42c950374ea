"""How well a decoder state matches each source position: the scores of Bahdanau and Luong.

scores → weights = softmax(scores) → context = Σ_i weights_i h_i

Q, M and A are the sizes of a query, of a source state, and of the space where both meet.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.scaled_dot_product import scaled_scores, softmax_where
from translate.linear import Linear


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
    """Bahdanau et al. 2015, A.1.2:  e_ti = vᵀ tanh(W_Q s_{t-1} + W_K h_i)

    Queries and keys are projected once each, but tanh and v see every pair: B·T·S·A numbers, and as
    many kept for the backward pass; scores that are matrix products need B·T·S.
    """

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()
        self.W_Q = Linear(query_size, attention_size, bias=False)
        self.W_K = Linear(memory_size, attention_size, bias=False)
        self.v = nn.Linear(attention_size, 1, bias=False)

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S A"]:
        return self.W_K(states)  # type: ignore[no-any-return]

    def forward(
        self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        pairs = self.W_Q(query)[:, :, None] + keys[:, None]  # (B, T, S, A)
        return self.v(torch.tanh(pairs)).squeeze(-1)  # type: ignore[no-any-return]


class DotAttention(AlignmentScore):
    """Luong et al. 2015, section 3.1 (dot):  e_ti = s_tᵀ h_i"""

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        return states

    def forward(
        self, query: Float[Tensor, "B T M"], keys: Float[Tensor, "B S M"]
    ) -> Float[Tensor, "B T S"]:
        return query @ keys.transpose(1, 2)


class ScaledDotAttention(DotAttention):
    """Vaswani et al. 2017, eq. 1, without projections:  e_ti = s_tᵀ h_i / √d"""

    def forward(
        self, query: Float[Tensor, "B T M"], keys: Float[Tensor, "B S M"]
    ) -> Float[Tensor, "B T S"]:
        return scaled_scores(query, keys)


class GeneralAttention(DotAttention):
    """Luong et al. 2015, section 3.1 (general):  e_ti = s_tᵀ W_a h_i,  where W_a = W / √d

    W is what is learned. Adam moves each of its d² entries by the learning rate, and all of them
    add up in one score: without the root a step throws the weights from one word to another.
    """

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__(
            query_size=query_size, memory_size=memory_size, attention_size=attention_size
        )
        self.W = Linear(memory_size, query_size, bias=False)

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S Q"]:
        return self.W(states) / math.sqrt(self.W.out_features)  # type: ignore[no-any-return]


class ConcatAttention(AdditiveAttention):
    """Luong et al. 2015, section 3.1 (concat):  e_ti = vᵀ tanh(W_a [s_t ; h_i])

    W_a [s ; h] = W_Q s + W_K h, so it is the additive score. Luong asks with s_t, Bahdanau with
    s_{t-1}: that is for `model.query` to say.
    """


class ProjectedAttention(AlignmentScore):
    """Both sides mapped to a common space:  q = f(s), k = g(h), e = q kᵀ

    With f(s) = tanh(W_Q s) and g(h) = tanh(W_K h) the nonlinearity is applied M + N times for M
    queries and N keys, not M·N times as in the additive score; the pairs are one matrix product.
    """

    def __init__(self, *, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()
        self.W_Q = Linear(query_size, attention_size, bias=False)
        self.W_K = Linear(memory_size, attention_size, bias=False)

    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S A"]:
        return torch.tanh(self.W_K(states))

    def forward(
        self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        return torch.tanh(self.W_Q(query)) @ keys.transpose(1, 2)


SCORES: dict[str, type[AlignmentScore]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "scaled_dot": ScaledDotAttention,
    "general": GeneralAttention,
    "concat": ConcatAttention,
    "projected": ProjectedAttention,
}


class Alignment(nn.Module, ABC):
    """The weights a_t of each query over the source: not negative, and 0 at padding.

    Local attention has 0 outside its window too: a row of `local_p` sums to at most 1, and one of
    `local_m` to 0 where no word is in its window.
    """

    @abstractmethod
    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        """The weights, from the scores; local attention looks at the query or its position t."""


class GlobalAlignment(Alignment):
    """Luong et al. 2015, eq. 7:  a_t = softmax(e_t), over the whole sentence."""

    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        return softmax_where(scores, mask[:, None])
