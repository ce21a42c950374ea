"""Each alignment score against a loop written from its formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from translate.attention.alignment import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    attend,
)
from translate.attention.masks import padding_mask

EXACT = {"rtol": 0.0, "atol": 1e-12}


def randn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("kind", [AdditiveAttention, ConcatAttention])
def test_additive_score_is_the_sum_in_the_paper(kind: type[AdditiveAttention]) -> None:
    score = kind(query_size=3, memory_size=4, attention_size=5).double()
    s, h = randn(2, 3, 3), randn(2, 6, 4)
    actual = score(s, score.keys(h))
    W_Q, W_K, v = score.W_Q.weight, score.W_K.weight, score.v.weight[0]
    for b in range(2):
        for t in range(3):
            for i in range(6):
                expected = v @ torch.tanh(W_Q @ s[b, t] + W_K @ h[b, i])
                torch.testing.assert_close(actual[b, t, i], expected, **EXACT)


def test_concat_score_is_one_matrix_over_both() -> None:
    score = ConcatAttention(query_size=3, memory_size=4, attention_size=5).double()
    W_a = torch.cat((score.W_Q.weight, score.W_K.weight), dim=1)
    s, h = randn(1, 2, 3), randn(1, 3, 4)
    expected = score.v.weight[0] @ torch.tanh(W_a @ torch.cat((s[0, 1], h[0, 2])))
    torch.testing.assert_close(score(s, score.keys(h))[0, 1, 2], expected, **EXACT)


def test_dot_and_general_scores() -> None:
    dot = DotAttention(query_size=4, memory_size=4, attention_size=1)
    general = GeneralAttention(query_size=3, memory_size=4, attention_size=1).double()
    h = randn(2, 5, 4)
    for b in range(2):
        for t in range(3):
            for i in range(5):
                s = randn(2, 3, 4)
                torch.testing.assert_close(dot(s, dot.keys(h))[b, t, i], s[b, t] @ h[b, i], **EXACT)
                s = randn(2, 3, 3)
                expected = s[b, t] @ general.W_a.weight @ h[b, i]
                torch.testing.assert_close(general(s, general.keys(h))[b, t, i], expected, **EXACT)


def test_context_is_the_weighted_sum_of_real_positions() -> None:
    scores, values = randn(2, 3, 5), randn(2, 5, 4)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    context, weights = attend(scores, mask, values)
    expected = scores[1, 2, :2].softmax(0)
    torch.testing.assert_close(weights[1, 2, :2], expected, **EXACT)
    torch.testing.assert_close(context[1, 2], expected @ values[1, :2], **EXACT)
    assert (weights[1, :, 2:] == 0).all()
