"""Each mechanism against a loop written from its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from translate.attention.masks import causal_mask, over_keys, padding_mask
from translate.attention.multi_head import CrossAttention, SelfAttention
from translate.attention.positions import rotate, sinusoidal
from translate.attention.scaled_dot_product import (
    fused_attention,
    readable_attention,
    softmax_where,
)

EXACT = {"rtol": 0.0, "atol": 1e-12}


def randn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def test_the_worked_example_of_scaled_dot_product_attention() -> None:
    """Words as (sports, animal, other): baseball (2, 0, 0), bat (1, 1, 0)."""
    words = torch.tensor([[2.0, 0, 0], [1, 1, 0]])[None, None]
    output, weights = readable_attention(words, words, words)
    expected = torch.tensor([[0.7604, 0.2396], [0.5, 0.5]])
    torch.testing.assert_close(weights[0, 0], expected, rtol=0, atol=5e-5)
    pulled = torch.tensor([[1.7604, 0.2396, 0], [1.5, 0.5, 0]])
    torch.testing.assert_close(output[0, 0], pulled, rtol=0, atol=5e-5)
    torch.testing.assert_close(fused_attention(words, words, words), output)


def test_a_row_that_may_see_nothing_is_zeros_and_has_finite_gradients() -> None:
    scores = randn(1, 2, 3).requires_grad_()
    mask = torch.tensor([[[True, True, False], [False, False, False]]])
    weights = softmax_where(scores, mask)
    assert weights[0, 1].tolist() == [0, 0, 0]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masked", ["causal", "padding", "none"])
def test_fused_equals_readable(dtype: torch.dtype, groups: int, masked: str) -> None:
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}[dtype]
    query = randn(2, 4, 6, 8).to(dtype).requires_grad_()
    keys = randn(2, groups, 6, 8).to(dtype).requires_grad_()
    values = randn(2, groups, 6, 8).flip(0).to(dtype).requires_grad_()
    mask = over_keys(padding_mask(torch.tensor([6, 3]), 6)) if masked == "padding" else None
    causal = masked == "causal"
    readable, _ = readable_attention(query, keys, values, mask=mask, causal=causal)
    fused = fused_attention(query, keys, values, mask=mask, causal=causal)
    torch.testing.assert_close(fused, readable, rtol=0, atol=tolerance)
    inputs = (query, keys, values)
    ours = torch.autograd.grad(readable.float().square().sum(), inputs)
    theirs = torch.autograd.grad(fused.float().square().sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=4 * tolerance, atol=10 * tolerance)


def test_causal_weights_are_lower_triangular() -> None:
    x = randn(1, 2, 5, 4)
    _, weights = readable_attention(x, x, x, causal=True)
    assert torch.equal(weights != 0, causal_mask(5).expand_as(weights))


def as_torch(
    ours: SelfAttention | CrossAttention, d_model: int, heads: int
) -> nn.MultiheadAttention:
    """PyTorch's module with our weights."""
    theirs = nn.MultiheadAttention(d_model, heads, batch_first=True, dtype=torch.float64)
    if isinstance(ours, SelfAttention):
        weight, bias = ours.qkv.weight, ours.qkv.bias
    else:
        weight = torch.cat((ours.query.weight, ours.key_value.weight))
        bias = torch.cat((ours.query.bias, ours.key_value.bias))
    with torch.no_grad():
        theirs.in_proj_weight.copy_(weight)
        theirs.in_proj_bias.copy_(bias)
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return theirs


def test_self_attention_equals_pytorchs_under_copied_weights() -> None:
    ours = SelfAttention(d_model=8, num_heads=2, num_kv_heads=2, dropout=0.0, rotary=False).double()
    theirs = as_torch(ours, 8, 2)
    x = randn(2, 5, 8).requires_grad_()
    expected, _ = theirs(x, x, x, attn_mask=~causal_mask(5))
    actual = ours(x, causal=True)
    torch.testing.assert_close(actual, expected, **EXACT)
    torch.testing.assert_close(
        torch.autograd.grad(actual.sum(), x), torch.autograd.grad(expected.sum(), x), **EXACT
    )


def test_cross_attention_equals_pytorchs_with_its_weights() -> None:
    ours = CrossAttention(d_model=8, num_heads=2, num_kv_heads=2, dropout=0.0).double()
    theirs = as_torch(ours, 8, 2)
    x, memory = randn(2, 3, 8), randn(2, 5, 8)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    expected, expected_weights = theirs(
        x, memory, memory, key_padding_mask=~mask, average_attn_weights=False
    )
    keys_values = ours.keys_values(memory)
    actual, weights = ours(x, keys_values, mask=over_keys(mask), need_weights=True)
    torch.testing.assert_close(actual, expected, **EXACT)
    torch.testing.assert_close(weights, expected_weights, **EXACT)
    torch.testing.assert_close(ours(x, keys_values, mask=over_keys(mask))[0], expected, **EXACT)


def test_fused_projection_equals_three() -> None:
    attention = SelfAttention(
        d_model=8, num_heads=2, num_kv_heads=1, dropout=0.0, rotary=False
    ).double()
    x = randn(1, 3, 8)
    query, memory = attention.project(x)
    W, b = attention.qkv.weight, attention.qkv.bias
    torch.testing.assert_close(query[0, 1], x[0] @ W[4:8].T + b[4:8], **EXACT)
    torch.testing.assert_close(memory.keys[0, 0], x[0] @ W[8:12].T + b[8:12], **EXACT)
    torch.testing.assert_close(memory.values[0, 0], x[0] @ W[12:16].T + b[12:16], **EXACT)


def test_sinusoidal_positions_follow_the_formula_from_any_start() -> None:
    wave = sinusoidal(3, 2, randn(1, 6))
    for position in (3, 4):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert wave[position - 3, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert wave[position - 3, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_scores_depend_on_distance_alone() -> None:
    query, key = randn(1, 1, 1, 8), randn(1, 1, 1, 8).flip(-1)

    def score(at: int, of: int) -> float:
        return float((rotate(query, at) * rotate(key, of)).sum())

    assert score(7, 4) == pytest.approx(score(12, 9), abs=1e-5)
    assert score(7, 4) != pytest.approx(score(7, 5), abs=1e-3)
    torch.testing.assert_close(rotate(query, 5).norm(), query.norm(), rtol=0, atol=1e-6)
