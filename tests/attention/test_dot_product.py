"""Scaled dot-product attention: the worked example, the fused twin, and what softmax promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from translate.attention.dot_product import (
    fused_attention,
    readable_attention,
    softmax_where,
    step_attention,
)
from translate.attention.masks import over_keys, padding_mask

Randn = Callable[..., Tensor]
EXACT = {"rtol": 0.0, "atol": 1e-12}


def test_the_worked_example() -> None:
    """Words as (sports, animal, other): baseball (2, 0, 0), bat (1, 1, 0)."""
    words = torch.tensor([[2.0, 0, 0], [1, 1, 0]])[None, None]
    output, weights = readable_attention(words, words, words)
    expected = torch.tensor([[0.7604, 0.2396], [0.5, 0.5]])
    torch.testing.assert_close(weights[0, 0], expected, rtol=0, atol=5e-5)
    pulled = torch.tensor([[1.7604, 0.2396, 0], [1.5, 0.5, 0]])
    torch.testing.assert_close(output[0, 0], pulled, rtol=0, atol=5e-5)
    torch.testing.assert_close(fused_attention(words, words, words), output)


def test_it_is_the_sum_in_the_paper(randn: Randn) -> None:
    """Σ_j softmax_j(q_i · k_j / √d_k + bias_ij) v_j, with d_v ≠ d_k and N_Q ≠ N_X, by loops."""
    query, keys, values = randn(1, 2, 3, 4), randn(1, 2, 5, 4), randn(1, 2, 5, 6)
    bias, mask = randn(1, 2, 3, 5), torch.rand(3, 5) < 0.7
    output, _ = readable_attention(query, keys, values, mask=mask, bias=bias)
    for h in range(2):
        for i in range(3):
            seen = [j for j in range(5) if mask[i, j]]
            powers = [math.exp(query[0, h, i] @ keys[0, h, j] / 2 + bias[0, h, i, j]) for j in seen]
            expected = sum(
                (p / sum(powers) * values[0, h, j] for p, j in zip(powers, seen, strict=True)),
                torch.zeros(6, dtype=torch.float64),
            )
            torch.testing.assert_close(output[0, h, i], expected, **EXACT)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 4e-2)],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("masked", ["causal", "padding", "causal and padding", "none"])
def test_fused_equals_readable(
    masked: str, biased: bool, groups: int, dtype: torch.dtype, tolerance: float, randn: Randn
) -> None:
    """Forward and gradients; gradients may differ by ten times as much."""
    query, keys, values, bias = inputs = [
        randn(*shape).to(dtype).requires_grad_()
        for shape in [(2, 4, 6, 8), (2, groups, 6, 8), (2, groups, 6, 8), (1, 4, 6, 6)]
    ]
    mask = over_keys(padding_mask(torch.tensor([6, 0]), 6)) if "padding" in masked else None
    added = {"mask": mask, "causal": "causal" in masked, "bias": bias if biased else None}
    inputs = inputs if biased else inputs[:3]
    readable, weights = readable_attention(query, keys, values, **added)
    fused = fused_attention(query, keys, values, **added)
    torch.testing.assert_close(fused, readable, rtol=0, atol=tolerance)
    ours, theirs = (
        torch.autograd.grad(y.float().square().sum(), inputs) for y in (readable, fused)
    )
    torch.testing.assert_close(ours, theirs, rtol=4 * tolerance, atol=10 * tolerance)
    if mask is not None:  # the second sentence is nothing but padding
        assert (weights[1] == 0).all()
        assert (readable[1] == 0).all()
        assert (fused[1] == 0).all()


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masked", ["causal", "padding", "none"])
def test_half_precision_at_a_models_sizes(masked: str, groups: int, randn: Randn) -> None:
    """On CUDA these are flash and efficient kernels; against the formula in float32."""
    queries = 29 if masked == "causal" else 37
    shapes = [(3, 4, queries, 64), (3, groups, 29, 64), (3, groups, 29, 64)]
    inputs = [randn(*shape).bfloat16().requires_grad_() for shape in shapes]
    wide = [x.detach().float().requires_grad_() for x in inputs]
    mask = over_keys(padding_mask(torch.tensor([29, 7, 0]), 29)) if masked == "padding" else None
    fused = fused_attention(*inputs, mask=mask, causal=masked == "causal")
    readable, _ = readable_attention(*wide, mask=mask, causal=masked == "causal")
    assert fused.dtype == torch.bfloat16
    torch.testing.assert_close(fused.float(), readable, rtol=2e-2, atol=2e-2)
    ours = torch.autograd.grad(fused.float().square().sum(), inputs)
    theirs = torch.autograd.grad(readable.square().sum(), wide)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=5e-2, atol=5e-2)
    if mask is not None:
        assert (fused[2] == 0).all()


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
def test_a_step_is_the_same_attention(
    dtype: torch.dtype, tolerance: float, queries: int, groups: int, randn: Randn
) -> None:
    """Of one query or of a beam, with heads of their own and shared, and a cache with room."""
    query = randn(3, 4, queries, 8)
    keys, values = (randn(3, groups, 16, 8)[:, :, :13] for _ in range(2))
    hidden = torch.rand(3, 1, queries, 13) < 0.5
    hidden[..., 0] = False
    for bias in (None, torch.zeros(hidden.shape, dtype=query.dtype).masked_fill(hidden, -math.inf)):
        expected, _ = readable_attention(query, keys, values, bias=bias)
        rounded = (x.to(dtype) for x in (query, keys, values))
        found = step_attention(*rounded, bias=bias)
        assert found.dtype == dtype
        torch.testing.assert_close(found.to(query.dtype), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_scores_and_a_wider_bias_in_half_precision(dtype: torch.dtype) -> None:
    x = torch.full((1, 1, 2, 64), 40.0, dtype=dtype)  # x · x is beyond float16, divided it is not
    options = {"mask": torch.ones(2, 2, dtype=torch.bool), "bias": torch.zeros(2, 2)}
    output, weights = readable_attention(x, x, x, **options)
    assert weights.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]]]
    torch.testing.assert_close(fused_attention(x, x, x, **options), output)


def test_a_row_that_may_see_nothing_is_zeros_and_has_finite_gradients(randn: Randn) -> None:
    scores = randn(1, 2, 3).requires_grad_()
    mask = torch.tensor([[[True, True, False], [False, False, False]]])
    weights = softmax_where(scores, mask)
    assert weights[0, 1].tolist() == [0, 0, 0]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_causal_weights_are_lower_triangular(randn: Randn) -> None:
    x = randn(1, 2, 5, 4)
    _, weights = readable_attention(x, x, x, causal=True)
    lower = torch.tensor([[column <= row for column in range(5)] for row in range(5)])
    assert torch.equal(weights != 0, lower.expand_as(weights))


def test_readable_dropout_drops_weights_and_keeps_their_expectation(randn: Randn) -> None:
    """Of one-hot values the output is the weights; each is left out, or divided by 1 - p."""
    query, keys, values = randn(1, 2, 6, 4), randn(1, 2, 6, 4), torch.eye(6).double()
    rows = values.expand(1, 2, 6, 6)
    draws = []
    for _ in range(2000):
        dropped, weights = readable_attention(query, keys, rows, dropout=0.25)
        draws.append(dropped)
    kept = draws[0] != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(draws[0][kept], weights[kept] / 0.75)
    torch.testing.assert_close(torch.stack(draws).mean(0), weights, rtol=0, atol=0.05)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 6, dtype=weights.dtype))
