"""Sentences laid end to end: the twin against padded attention, and the adapter of the kernel."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from translate.attention.cache import KeysValues
from translate.attention.dot_product import readable_attention
from translate.attention.masks import over_keys, padding_mask
from translate.attention.multi_head import FullAttention, Pattern
from translate.attention.packed import Packing, SameSentence, flash, sentence_by_sentence
from translate.attention.positions import LinearBiases
from translate.extras.patterns import LinearAttention, SlidingWindowAttention, StridedAttention

HEADS, D_K = 4, 8


def randn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def packed(padded: Tensor, mask: Tensor) -> Tensor:
    """(B, H, T, K) → the real positions of all sentences in one row, (1, H, M, K)."""
    return padded.transpose(1, 2)[mask].transpose(0, 1)[None]


def packing(lengths: Tensor) -> Packing:
    return Packing(lengths, longest=int(lengths.max()), total=int(lengths.sum()))


def test_starts_are_where_sentences_begin_and_the_last_one_ends() -> None:
    starts = packing(torch.tensor([3, 1, 2])).starts
    assert starts.tolist() == [0, 3, 4, 6]
    assert starts.dtype == torch.int32


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["cross", "self", "causal"]),
    st.integers(0, 10**6),
)
def test_packed_equals_padded_forward_and_backward(lengths, groups, kind, seed) -> None:
    targets = torch.tensor([pair[0] for pair in lengths])
    sources = torch.tensor([pair[1] for pair in lengths]) if kind == "cross" else targets
    seen = padding_mask(sources, int(sources.max()))
    real = padding_mask(targets, int(targets.max()))
    shapes = [(HEADS, real), (groups, seen), (groups, seen)]
    inputs = [
        randn(len(lengths), heads, mask.shape[1], D_K, seed=seed + i).requires_grad_()
        for i, (heads, mask) in enumerate(shapes)
    ]
    causal = kind == "causal"  # padding comes last, so causal queries never see it
    padded, _ = readable_attention(*inputs, mask=None if causal else over_keys(seen), causal=causal)
    query, keys, values = (
        packed(tensor, mask) for tensor, (_, mask) in zip(inputs, shapes, strict=True)
    )
    sentences = SameSentence(packing(targets), packing(sources))
    actual = sentences.attention(query, KeysValues(keys, values), causal=causal)
    expected = packed(padded, real)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    weights = randn(*expected.shape, seed=seed + 9)
    ours = torch.autograd.grad((actual * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "pattern",
    [
        SlidingWindowAttention(causal=True, window=1),
        StridedAttention(causal=True, stride=2),
        FullAttention(causal=True, relation=LinearBiases(num_heads=HEADS)),
        LinearAttention(causal=True),
    ],
    ids=lambda pattern: type(pattern).__name__,
)
def test_what_flash_cannot_compute_is_not_computed_another_way(pattern: Pattern) -> None:
    x = randn(1, HEADS, 5, D_K, seed=0)
    with pytest.raises(TypeError, match="only reads padded batches"):
        pattern.packed(x, KeysValues(x, x), packing(torch.tensor([2, 3])))


def in_one_mask(query, keys, values, query_starts, key_starts, causal) -> Tensor:
    """What any `varlen_attn` computes: readable attention in blocks along the diagonal."""
    tokens = torch.arange(len(query)), torch.arange(len(keys))
    sentence = [
        torch.bucketize(place, starts[1:].long(), right=True)
        for place, starts in zip(tokens, (query_starts, key_starts), strict=True)
    ]
    mask = sentence[0][:, None] == sentence[1]
    if causal:
        mask = mask & (tokens[0][:, None] >= tokens[1])
    heads = (x.transpose(0, 1)[None] for x in (query, keys, values))
    return readable_attention(*heads, mask=mask)[0][0].transpose(0, 1)


def as_in_2_10(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False,
    return_aux=None, scale=None,
) -> Tensor:  # fmt: skip
    assert (max_q, max_k) == (3, 3)
    assert query.shape[1] == key.shape[1]
    return in_one_mask(query, key, value, cu_seq_q, cu_seq_k, is_causal)


def as_in_2_13(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None,
    window_size=(-1, -1), enable_gqa=False,
) -> Tensor:  # fmt: skip
    assert window_size in [(-1, -1), (-1, 0)]
    assert enable_gqa == (query.shape[1] != key.shape[1])
    return in_one_mask(query, key, value, cu_seq_q, cu_seq_k, window_size == (-1, 0))


@pytest.mark.parametrize("varlen", [as_in_2_10, as_in_2_13])
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_the_adapter_speaks_each_signature(varlen, groups: int, causal: bool) -> None:
    each = packing(torch.tensor([3, 1, 2]))
    sentences = SameSentence(each, each)
    query = randn(6, HEADS, D_K, seed=1)
    keys, values = randn(6, groups, D_K, seed=2), randn(6, groups, D_K, seed=3)
    actual = flash(varlen, query, keys, values, sentences, causal=causal)
    expected = sentence_by_sentence(query, keys, values, sentences, causal=causal)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_the_installed_kernel_has_a_signature_that_the_adapter_knows() -> None:
    installed = inspect.signature(varlen_attn).parameters
    first = list(inspect.signature(as_in_2_10).parameters)[:7]
    assert list(installed)[:7] == first
    assert ("window_size" in installed) != ("is_causal" in installed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("kind", ["cross", "self", "causal"])
def test_on_cuda_the_kernel_equals_its_twin(kind: str, groups: int) -> None:
    targets = torch.tensor([30, 7, 64], device="cuda")
    sources = torch.tensor([12, 70, 5], device="cuda") if kind == "cross" else targets
    sentences, lengths = (
        SameSentence(packing(targets), packing(sources)),
        (targets, sources, sources),
    )
    inputs = [
        randn(int(tokens.sum()), heads, 64, seed=i).to("cuda", torch.bfloat16).requires_grad_()
        for i, (tokens, heads) in enumerate(zip(lengths, (HEADS, groups, groups), strict=True))
    ]
    query, keys, values = (x.transpose(0, 1)[None] for x in inputs)  # as a layer has them
    context = sentences.attention(query, KeysValues(keys, values), causal=kind == "causal")
    actual = context[0].transpose(0, 1)
    wide = [x.detach().float().requires_grad_() for x in inputs]
    expected = sentence_by_sentence(*wide, sentences, causal=kind == "causal")
    torch.testing.assert_close(actual.float(), expected, rtol=2e-2, atol=2e-2)
    ours = torch.autograd.grad(actual.float().square().sum(), inputs)
    theirs = torch.autograd.grad(expected.square().sum(), wide)
    for one, other in zip((actual, *ours), (expected, *theirs), strict=True):
        assert (one.float() - other).norm() < 0.01 * other.norm()  # bf16 keeps three digits
