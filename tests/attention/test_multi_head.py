"""Multi-head attention against PyTorch's module under copied weights, and against its formula."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from translate.attention.cache import Ancestry, KeyValueCache, Places
from translate.attention.masks import added_to_scores, over_keys, padding_mask
from translate.attention.multi_head import CrossAttention, FullAttention, SelfAttention

Randn = Callable[..., Tensor]
EXACT = {"rtol": 0.0, "atol": 1e-12}


def self_attention(*, heads: int = 4, groups: int = 4, causal: bool = False) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(
        d_model=8, num_heads=heads, num_kv_heads=groups, dropout=0.0, rotary=None,
        pattern=FullAttention(causal=causal),
    ).double()  # fmt: skip


def cross_attention(
    *, memory_size: int = 8, groups: int = 2, d_v: int = 4, d_model: int = 8
) -> CrossAttention:
    torch.manual_seed(0)
    return CrossAttention(
        d_model=d_model, memory_size=memory_size, num_heads=2, num_kv_heads=groups, d_v=d_v,
        dropout=0.0,
    ).double()  # fmt: skip


def gradients(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a function that treats every number of y differently."""
    pull = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return torch.autograd.grad((y * pull).sum(), inputs, retain_graph=True)


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_self_attention_equals_pytorchs_under_copied_weights(causal: bool, randn: Randn) -> None:
    ours = self_attention(causal=causal)
    theirs = nn.MultiheadAttention(8, 4, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict({
        "in_proj_weight": ours.qkv.weight, "in_proj_bias": ours.qkv.bias,
        "out_proj.weight": ours.output.weight, "out_proj.bias": ours.output.bias,
    })  # fmt: skip
    x = randn(2, 5, 8).requires_grad_()
    padding = padding_mask(torch.tensor([5, 2]), 5)
    expected, _ = theirs(
        x,
        x,
        x,
        key_padding_mask=~padding,
        attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None,
    )
    actual = ours(x, mask=over_keys(padding))
    torch.testing.assert_close(actual, expected, **EXACT)
    mine = gradients(actual, [x, ours.qkv.weight, ours.qkv.bias, ours.output.weight])
    other = gradients(
        expected, [x, theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj.weight]
    )
    torch.testing.assert_close(mine, other, **EXACT)


@pytest.mark.parametrize("size", [8, 5, 13])
def test_cross_attention_equals_pytorchs_with_data_of_its_own_size(size: int, randn: Randn) -> None:
    """kdim = vdim = the size of the data, which is not that of the queries; weights too."""
    ours = cross_attention(memory_size=size)
    theirs = nn.MultiheadAttention(
        8, 2, batch_first=True, dtype=torch.float64, kdim=size, vdim=size
    )
    W_K, W_V = ours.key_value.weight.chunk(2)
    named = dict(theirs.named_parameters())
    with torch.no_grad():
        if size == 8:  # PyTorch then has one matrix for all three
            named["in_proj_weight"].copy_(torch.cat((ours.query.weight, W_K, W_V)))
        else:
            named["q_proj_weight"].copy_(ours.query.weight)
            named["k_proj_weight"].copy_(W_K)
            named["v_proj_weight"].copy_(W_V)
        named["in_proj_bias"].copy_(torch.cat((ours.query.bias, ours.key_value.bias)))
        named["out_proj.weight"].copy_(ours.output.weight)
        named["out_proj.bias"].copy_(ours.output.bias)
    x, memory = randn(2, 3, 8).requires_grad_(), randn(2, 5, size).requires_grad_()
    mask = padding_mask(torch.tensor([5, 2]), 5)
    expected, expected_weights = theirs(
        x, memory, memory, key_padding_mask=~mask, average_attn_weights=False
    )
    padding = added_to_scores(over_keys(mask), x.dtype)
    readable, weights = ours(x, ours.keys_values(memory), padding=padding, need_weights=True)
    fused, none = ours(x, ours.keys_values(memory), padding=padding)
    assert none is None
    torch.testing.assert_close(weights, expected_weights, **EXACT)
    for actual in (readable, fused):
        torch.testing.assert_close(actual, expected, **EXACT)
        mine = gradients(actual, [x, memory, ours.query.bias, ours.output.weight])
        other = gradients(expected, [x, memory, named["in_proj_bias"], named["out_proj.weight"]])
        torch.testing.assert_close(mine[2], other[2][:8], **EXACT)
        torch.testing.assert_close(
            [mine[0], mine[1], mine[3]], [other[0], other[1], other[3]], **EXACT
        )


def test_a_sentence_of_padding_alone_gives_nothing_with_weights_or_without(randn: Randn) -> None:
    attention = cross_attention()
    x, memory = randn(2, 3, 8), randn(2, 5, 8)
    mask = over_keys(padding_mask(torch.tensor([5, 0]), 5))
    padding = added_to_scores(mask, x.dtype)
    for need_weights in (False, True):
        y, weights = attention(
            x, attention.keys_values(memory), padding=padding, need_weights=need_weights
        )
        torch.testing.assert_close(y[1], attention.output.bias.expand_as(y[1]), **EXACT)
        assert weights is None or (weights[1] == 0).all()


def test_keys_and_values_from_data_of_two_sizes(randn: Randn) -> None:
    """PyTorch's kdim ≠ vdim: our memory is both side by side, each projection blind to one."""
    ours = cross_attention(memory_size=3 + 5)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64, kdim=3, vdim=5)
    named = dict(theirs.named_parameters())
    with torch.no_grad():
        ours.key_value.weight[:8, 3:] = 0
        ours.key_value.weight[8:, :3] = 0
        named["q_proj_weight"].copy_(ours.query.weight)
        named["k_proj_weight"].copy_(ours.key_value.weight[:8, :3])
        named["v_proj_weight"].copy_(ours.key_value.weight[8:, 3:])
        named["in_proj_bias"].copy_(torch.cat((ours.query.bias, ours.key_value.bias)))
        named["out_proj.weight"].copy_(ours.output.weight)
        named["out_proj.bias"].copy_(ours.output.bias)
    x = randn(2, 3, 8).requires_grad_()
    of_keys, of_values = randn(2, 4, 3).requires_grad_(), randn(2, 4, 5).requires_grad_()
    expected, _ = theirs(x, of_keys, of_values)
    actual, _ = ours(x, ours.keys_values(torch.cat((of_keys, of_values), dim=-1)))
    torch.testing.assert_close(actual, expected, **EXACT)
    inputs = [x, of_keys, of_values]
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs), **EXACT)


def test_values_of_another_size_than_keys(randn: Randn) -> None:
    """head_i = softmax(q_i kᵀ / √d_k) V with d_k = 4, d_v = 7, then W^O from 2 · 7 to 8."""
    ours = cross_attention(memory_size=5, groups=1, d_v=7)
    x, memory = randn(1, 3, 8), randn(1, 6, 5)
    keys_values = ours.keys_values(memory)
    assert keys_values.keys.shape == (1, 1, 6, 4)
    assert keys_values.values.shape == (1, 1, 6, 7)
    keys, values = ours.key_value(memory[0]).split([4, 7], dim=-1)
    query = ours.query(x[0])
    both = [(query[:, h : h + 4] @ keys.T / 2).softmax(-1) @ values for h in (0, 4)]
    expected = ours.output(torch.cat(both, dim=-1))
    for need_weights in (False, True):
        actual, _ = ours(x, keys_values, need_weights=need_weights)
        torch.testing.assert_close(actual[0], expected, **EXACT)


def test_fused_projection_equals_three(randn: Randn) -> None:
    attention = self_attention(heads=2, groups=1)
    x = randn(1, 3, 8)
    query, memory = attention.in_heads(attention.qkv(x), start=0, length=x.shape[1])
    W, b = attention.qkv.weight, attention.qkv.bias
    torch.testing.assert_close(query[0, 1], x[0] @ W[4:8].T + b[4:8], **EXACT)
    torch.testing.assert_close(memory.keys[0, 0], x[0] @ W[8:12].T + b[8:12], **EXACT)
    torch.testing.assert_close(memory.values[0, 0], x[0] @ W[12:16].T + b[12:16], **EXACT)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_equals_multi_head_with_repeated_groups(groups: int, randn: Randn) -> None:
    """... and its cache is smaller by the ratio of heads to groups."""
    grouped, multi = self_attention(groups=groups, causal=True), self_attention(causal=True)
    with torch.no_grad():
        for mine, other in zip(multi.qkv.parameters(), grouped.qkv.parameters(), strict=True):
            heads = other.view(4 + 2 * groups, 2, -1)  # each two wide
            keys, values = heads[4 : 4 + groups], heads[4 + groups :]
            copies = [part.repeat_interleave(4 // groups, dim=0) for part in (keys, values)]
            mine.copy_(torch.cat((heads[:4], *copies)).view_as(mine))
        multi.output.load_state_dict(grouped.output.state_dict())
    x = randn(2, 6, 8)
    torch.testing.assert_close(grouped(x), multi(x), **EXACT)
    sizes = []
    for attention in (grouped, multi):
        cache = attention.empty_cache(2, like=x)
        assert isinstance(cache, KeyValueCache)
        for t in range(6):
            step = attention.step(x[:, t], cache, Ancestry(t + 1), Places.of(2, beam=1))
            torch.testing.assert_close(step, multi(x)[:, t], **EXACT)
        sizes.append(cache.keys.numel() + cache.values.numel())
    assert sizes[0] * 4 // groups == sizes[1]
