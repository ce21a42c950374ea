"""Scores of how well a decoder state matches each source position: Bahdanau's and Luong's.

scores → weights = softmax(scores) → context = Σ_i weights_i h_i

Q, M and A are the sizes of a query, of a source state, and of the space where both meet.

Local attention (Luong et al. 2015, section 3.2) looks at a window of the source, from p_t - D to
p_t + D; positions count from 0. The part of a window that lies outside the sentence is ignored, as
in the paper; a window with no word of the sentence in it has weights, and so a context, of zeros.
All scores are computed and those outside are hidden: for sentences one matrix product is cheaper
than gathering windows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from translate.attention.dot_product import scaled_scores, softmax_where
from translate.attention.masks import window_around
from translate.linear import Linear


class AlignmentScore(nn.Module, ABC):
    """e(s_t, h_i) for every query s_t and source state h_i."""

    @abstractmethod
    def keys(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S A"]:
        """The part of the score that needs the source states alone: computed once a sentence."""

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


class MonotonicAlignment(Alignment):
    """local-m: source and target run side by side,  p_t = t,  a_t = softmax within the window."""

    def __init__(self, *, query_size: int, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        window = window_around(position, scores.shape[-1], self.window)
        return softmax_where(scores, mask[:, None] & window)


class PredictiveAlignment(Alignment):
    """local-p: the query says where to look (eq. 9 and 10, σ = D/2).

    p_t = S · sigmoid(v_pᵀ tanh(W_p s_t))
    a_t(i) = align(s_t, h_i) · exp(-(i - p_t)² / 2σ²)

    S is the sentence's own length, </s> counted and padding not; its places are 0 … S-1. Through
    the Gaussian p_t is learned. It is not normalised again: it is exp(-2) at the window's edge and
    1 at p_t, so a row sums to something between the two, and the context is as much smaller.
    """

    def __init__(self, *, query_size: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.W_p = nn.Linear(query_size, query_size, bias=False)
        self.v_p = nn.Linear(query_size, 1, bias=False)

    def centres(
        self, query: Float[Tensor, "B T Q"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B T"]:
        """p_t, from 0 to S."""
        # float32 at least: bf16 cannot tell neighbours apart from position 256 on
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            seen = torch.tanh(F.linear(query.to(wide), self.W_p.weight.to(wide)))
            where = torch.sigmoid(F.linear(seen, self.v_p.weight.to(wide))).squeeze(-1)
            return mask.sum(1, keepdim=True) * where

    def forward(
        self,
        scores: Float[Tensor, "B T S"],
        mask: Bool[Tensor, "B S"],
        query: Float[Tensor, "B T Q"],
        position: Int[Tensor, "T"],
    ) -> Float[Tensor, "B T S"]:
        centres = self.centres(query, mask)
        window = window_around(centres, scores.shape[-1], self.window)
        distance = torch.arange(scores.shape[-1], device=scores.device) - centres[..., None]
        sigma = self.window / 2
        gaussian = torch.exp(-(distance**2) / (2 * sigma**2))
        return softmax_where(scores, mask[:, None] & window) * gaussian.to(scores.dtype)


LOCAL: dict[str, type[MonotonicAlignment | PredictiveAlignment]] = {
    "local_m": MonotonicAlignment,
    "local_p": PredictiveAlignment,
}


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
        term = coverage[..., None] * self.V.weight[:, 0].to(coverage.dtype)  # (B, n, S, A)
        return (keys[:, None] + term).to(keys.dtype).flatten(0, 1)
