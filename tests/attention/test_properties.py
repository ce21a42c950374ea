"""What attention promises whatever the numbers: equivariance, invariance, convex combinations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from translate.attention.cache import KeysValues
from translate.attention.dot_product import fused_attention, readable_attention
from translate.attention.masks import over_keys, padding_mask
from translate.attention.multi_head import CrossAttention, FullAttention, Pattern, SelfAttention
from translate.attention.positions import Waves
from translate.extras.patterns import FastWeightAttention, LinearAttention, SlidingWindowAttention

EXACT = {"rtol": 0.0, "atol": 1e-12}
SETS = {"full": FullAttention, "linear": LinearAttention, "fast_weights": FastWeightAttention}
seeds = st.integers(0, 2**31)
quickly = settings(max_examples=20)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def self_attention(pattern: Pattern, **options: Any) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(
        d_model=8, num_heads=2, num_kv_heads=2, pattern=pattern, dropout=0.0,
        **{"rotary": None, **options},
    ).double()  # fmt: skip


@pytest.mark.parametrize("kind", SETS)
@given(order=st.permutations(range(6)), seed=seeds)
@quickly
def test_self_attention_of_a_permuted_sentence_is_permuted(
    kind: str, order: list[int], seed: int
) -> None:
    """Attention(AX) = A Attention(X) for every permutation A."""
    attention, x = self_attention(SETS[kind](causal=False)), drawn(seed, 1, 6, 8)
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order], **EXACT)


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        (FullAttention(causal=True), {}),
        (LinearAttention(causal=True), {}),
        (SlidingWindowAttention(causal=False, window=2), {}),
        (FullAttention(causal=False), {"rotary": Waves(d_model=4)}),
    ],
    ids=["causal", "linear causal", "window", "rotary"],
)
def test_masked_and_positioned_attention_is_not_equivariant(
    pattern: Pattern, options: dict[str, Any]
) -> None:
    attention, x = self_attention(pattern, **options), drawn(0, 1, 6, 8)
    order = [1, 2, 0, 5, 3, 4]
    assert not torch.allclose(attention(x[:, order]), attention(x)[:, order])


@given(order=st.permutations(range(5)), queries=st.permutations(range(3)), seed=seeds)
@quickly
def test_cross_attention_reads_the_source_as_a_set(
    order: list[int], queries: list[int], seed: int
) -> None:
    """Attention(AQ, BK, BV) = A Attention(Q, K, V): equivariant in queries, invariant in data."""
    torch.manual_seed(0)
    attention = CrossAttention(
        d_model=8, memory_size=6, num_heads=2, num_kv_heads=1, d_v=3, dropout=0.0
    ).double()
    x, memory = drawn(seed, 1, 3, 8), drawn(seed + 1, 1, 5, 6)
    expected, weights = attention(x, attention.keys_values(memory), need_weights=True)
    permuted = attention.keys_values(memory[:, order])
    actual, moved = attention(x[:, queries], permuted, need_weights=True)
    torch.testing.assert_close(actual, expected[:, queries], **EXACT)
    torch.testing.assert_close(moved, weights[:, :, queries][..., order], **EXACT)
    fused, _ = attention(x[:, queries], permuted)
    torch.testing.assert_close(fused, expected[:, queries], **EXACT)


@given(seed=seeds, scale=st.floats(0, 30), length=st.integers(0, 6), causal=st.booleans())
@quickly
def test_an_output_is_a_convex_combination_of_the_values(
    seed: int, scale: float, length: int, causal: bool
) -> None:
    """Weights are not negative and sum to one over the seen keys, or are all zero if none is."""
    query, keys = scale * drawn(seed, 1, 2, 6, 4), drawn(seed + 1, 1, 2, 6, 4)
    values, bias = drawn(seed + 2, 1, 2, 6, 3), drawn(seed + 3, 1, 2, 6, 6)
    mask = over_keys(padding_mask(torch.tensor([length]), 6))
    readable, weights = readable_attention(query, keys, values, mask=mask, causal=causal, bias=bias)
    assert (weights >= 0).all()
    sums = torch.full((1, 2, 6), float(length > 0), dtype=torch.float64)
    torch.testing.assert_close(weights.sum(-1), sums, **EXACT)
    fused = fused_attention(query, keys, values, mask=mask, causal=causal, bias=bias)
    linear = LinearAttention(causal=causal)(query / 10, KeysValues(keys, values), mask=mask)
    for output in (readable, fused, linear):
        for i in range(6):
            seen = values[:, :, : min(i + 1, length) if causal else length]
            if length == 0:
                assert (output[:, :, i] == 0).all()
            else:
                assert (output[:, :, i] <= seen.amax(2) + 1e-9).all()
                assert (output[:, :, i] >= seen.amin(2) - 1e-9).all()
