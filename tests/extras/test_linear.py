"""Linear attention against the sums in its papers, written as loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from translate.attention.cache import Ancestry, KeysValues
from translate.attention.masks import over_keys, padding_mask
from translate.extras.patterns import (
    FastWeightAttention,
    LinearAttention,
    feature_map,
    sum_normalised,
)

Randn = Callable[..., Tensor]
LENGTH = 150  # more than two chunks


def test_the_feature_map_is_positive_where_adding_one_would_round_to_zero() -> None:
    x = torch.tensor([-30.0, -10.0])
    torch.testing.assert_close(feature_map(x).log(), x, rtol=1e-6, atol=0)
    query = keys = torch.full((1, 1, 3, 4), -30.0)
    memory = KeysValues(keys, torch.ones(1, 1, 3, 2))
    assert torch.equal(LinearAttention(causal=True)(query, memory), torch.ones(1, 1, 3, 2))


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_linear_attention_weighs_by_products_of_features(causal: bool, randn: Randn) -> None:
    """V'_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) (eq. 4), over real keys; and gradients."""
    query = randn(2, 4, LENGTH, 3).requires_grad_()
    keys, values = randn(2, 2, LENGTH, 3).requires_grad_(), randn(2, 2, LENGTH, 5).requires_grad_()
    lengths = torch.tensor([LENGTH, 70])
    mask = over_keys(padding_mask(lengths, LENGTH))
    actual = LinearAttention(causal=causal)(query, KeysValues(keys, values), mask=mask)
    similarity = torch.einsum("bgtk,bgsk->bgts", feature_map(query), feature_map(
        keys.repeat_interleave(2, dim=1)
    ))  # fmt: skip
    similarity = similarity * mask
    if causal:
        similarity = similarity.tril()
    weights = similarity / similarity.sum(-1, keepdim=True)
    expected = weights @ values.repeat_interleave(2, dim=1)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    pull = randn(*expected.shape)
    inputs = (query, keys, values)
    ours, theirs = (torch.autograd.grad((y * pull).sum(), inputs) for y in (actual, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_unnormalised_it_is_the_fast_weight_controller_of_1992(randn: Randn) -> None:
    """W_t = W_{t-1} + v_t φ(k_t)ᵀ, y_t = W_t φ(q_t): outer products program the fast weights.

    φ sums to one, as in Schlag et al. 2021, section 4.2.
    """

    def phi(x: Tensor) -> Tensor:
        return feature_map(x) / sum(feature_map(x))

    query, keys, values = randn(1, 1, LENGTH, 3), randn(1, 1, LENGTH, 3), randn(1, 1, LENGTH, 3)
    whole = FastWeightAttention(causal=True)(query, KeysValues(keys, values))
    W = torch.zeros(3, 3, dtype=torch.float64)
    for t in range(LENGTH):
        W = W + torch.outer(values[0, 0, t], phi(keys[0, 0, t]))
        y = W @ phi(query[0, 0, t])
        torch.testing.assert_close(whole[0, 0, t], y, rtol=0, atol=1e-10)


def test_the_state_is_the_matrix_of_sums_however_long_the_sentence(randn: Randn) -> None:
    attention = LinearAttention(causal=True)
    cache = attention.empty_cache(2, 2, 3, like=randn(1))
    keys, values = randn(2, 2, 20, 3), randn(2, 2, 20, 3)
    for t in range(20):
        new = KeysValues(keys[:, :, t : t + 1], values[:, :, t : t + 1])
        attention.step(randn(2, 4, 1, 3), new, cache, Ancestry(t + 1))
        assert cache.sums.shape == (2, 2, 3, 4)
    expected = feature_map(keys).transpose(2, 3) @ values
    torch.testing.assert_close(cache.sums[..., :3], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(cache.sums[..., 3], feature_map(keys).sum(2), rtol=0, atol=1e-12)
    swapped = cache.at(torch.tensor([1, 0, 1]))
    assert torch.equal(swapped.sums, cache.sums[[1, 0, 1]])


def test_a_query_without_keys_reads_zeros_and_has_finite_gradients(randn: Randn) -> None:
    query, keys = randn(1, 1, 4, 3).requires_grad_(), randn(1, 1, 4, 3).requires_grad_()
    mask = torch.zeros(1, 1, 1, 4, dtype=torch.bool)
    for causal in (False, True):
        output = LinearAttention(causal=causal)(query, KeysValues(keys, keys), mask=mask)
        assert (output == 0).all()
        assert all(g.isfinite().all() for g in torch.autograd.grad(output.sum(), (query, keys)))


def test_sums_are_float32_at_least(randn: Randn) -> None:
    """A count past 256 would stand still in bf16."""
    ones = torch.ones(1, 1, 1000, 2, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = FastWeightAttention(causal=True)(ones, KeysValues(ones, ones))
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output[0, 0, -1].float(), torch.full((2,), 500.0))


def test_features_sum_to_one_however_small_they_are(randn: Randn) -> None:
    x = randn(5, 3)
    torch.testing.assert_close(sum_normalised(x).sum(-1), torch.ones(5).double())
    torch.testing.assert_close(
        sum_normalised(x), feature_map(x) / feature_map(x).sum(-1, keepdim=True)
    )
    for low in (-50.0, -88.0, -95.0, -200.0):  # φ is subnormal, then 0, in float32
        small = torch.full((4,), low, requires_grad=True)
        assert sum_normalised(small).tolist() == [0.25] * 4
        (weighted,) = torch.autograd.grad((sum_normalised(small) * randn(4).float()).sum(), small)
        assert weighted.abs().max() < 10
    negative = (-randn(3, 4).abs()).requires_grad_()
    assert torch.autograd.gradcheck(sum_normalised, (negative,))
