"""Every pattern of self-attention against the readable formula under a mask made by loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from translate.attention.cache import Ancestry, KeysValues
from translate.attention.dot_product import readable_attention
from translate.attention.masks import over_keys, padding_mask
from translate.attention.multi_head import FullAttention, Pattern
from translate.attention.positions import LinearBiases, Relation, RelativeKeys
from translate.extras.patterns import (
    FastWeightAttention,
    FixedAttention,
    LinearAttention,
    SlidingWindowAttention,
    StridedAttention,
)

Randn = Callable[..., Tensor]
LENGTH = 150  # more than two blocks of a window, more than two chunks of linear attention
WINDOW, WIDE, STRIDE, SUMMARY = 7, 70, 8, 3

# may query i see key j: the definitions in the papers, for an encoder
SEEN: dict[str, Callable[[int, int], bool]] = {
    "full": lambda i, j: True,
    "window": lambda i, j: abs(i - j) <= WINDOW // 2,
    "wide": lambda i, j: abs(i - j) <= WIDE // 2,
    "strided": lambda i, j: abs(i - j) <= STRIDE or (i - j) % STRIDE == 0,
    "fixed": lambda i, j: i // STRIDE == j // STRIDE or j % STRIDE in (5, 6, 7),
}
# ... and for a causal decoder, beside j ≤ i
SEEN_BEFORE = SEEN | {"window": lambda i, j: i - j < WINDOW, "wide": lambda i, j: i - j < WIDE}
SOFTMAX: dict[str, Callable[..., FullAttention]] = {
    "full": FullAttention,
    "window": lambda **options: SlidingWindowAttention(window=WINDOW, **options),
    "wide": lambda **options: SlidingWindowAttention(window=WIDE, **options),
    "strided": lambda **options: StridedAttention(stride=STRIDE, **options),
    "fixed": lambda **options: FixedAttention(stride=STRIDE, summary=SUMMARY, **options),
}
PATTERNS: dict[str, Callable[..., Pattern]] = {
    **SOFTMAX,
    "linear": LinearAttention,
    "fast_weights": FastWeightAttention,
}
RELATIONS: dict[str, Callable[[], Relation | None]] = {
    "no relation": lambda: None,
    "relative": lambda: RelativeKeys(d_k=8, max_distance=5).double(),
    "alibi": lambda: LinearBiases(num_heads=4).double(),
}


def mask_by_loops(kind: str, length: int, *, causal: bool) -> Tensor:
    seen = SEEN_BEFORE[kind] if causal else SEEN[kind]
    rows = [[seen(i, j) and (j <= i or not causal) for j in range(length)] for i in range(length)]
    return torch.tensor(rows)


def heads(randn: Randn, length: int = LENGTH, groups: int = 2) -> list[Tensor]:
    """A query of four heads, and keys and values."""
    shapes = [(2, 4, length, 8), (2, groups, length, 8), (2, groups, length, 8)]
    return [randn(*shape).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", SOFTMAX)
def test_equals_readable_attention_under_its_mask(
    kind: str, causal: bool, relation: str, randn: Randn
) -> None:
    """Output and gradients, beside a sentence so short that whole windows are padding."""
    torch.manual_seed(0)
    pattern = SOFTMAX[kind](causal=causal, relation=RELATIONS[relation]())
    query, keys, values = inputs = heads(randn)
    padding = over_keys(padding_mask(torch.tensor([LENGTH, 3]), LENGTH))
    at = torch.arange(LENGTH)
    expected, weights = readable_attention(
        query, keys, values, mask=padding & mask_by_loops(kind, LENGTH, causal=causal),
        bias=pattern.bias(query, at, at),
    )  # fmt: skip
    actual = pattern(query, KeysValues(keys, values), mask=padding)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    inputs += list(pattern.parameters())
    pull = randn(*expected.shape)
    ours, theirs = (torch.autograd.grad((y * pull).sum(), inputs) for y in (actual, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    if kind != "full":
        nothing = weights[1].sum(-1) == 0
        assert (kind != "window") or nothing.any()
        assert (actual[1][nothing] == 0).all()


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", PATTERNS)
def test_every_pattern_can_tell_its_weights(kind: str, causal: bool, randn: Randn) -> None:
    """Those under which its values are summed; a mean's sum to one, none is of what is hidden."""
    pattern = PATTERNS[kind](causal=causal)
    query, keys, values = (x.detach() for x in heads(randn))
    padding = over_keys(padding_mask(torch.tensor([LENGTH, 90]), LENGTH))
    weights = pattern.weights(query, keys, mask=padding)
    assert weights.shape == (2, 4, LENGTH, LENGTH)
    expected = weights @ values.repeat_interleave(2, dim=1)
    actual = pattern(query, KeysValues(keys, values), mask=padding)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    seen = padding & mask_by_loops(kind if kind in SEEN else "full", LENGTH, causal=causal)
    assert (weights.masked_select(~seen) == 0).all()
    if kind != "fast_weights":  # sums, not means
        met = seen.any(-1).expand(2, 4, LENGTH)
        torch.testing.assert_close(weights.sum(-1)[met], torch.ones_like(weights[..., 0])[met])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str
)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", PATTERNS)
def test_fewer_bits_change_the_last_digits_only(
    kind: str, causal: bool, dtype: torch.dtype, tolerance: float, randn: Randn
) -> None:
    """Against float64 from the same rounded numbers; errors are relative to the largest value."""
    pattern = PATTERNS[kind](causal=causal)
    inputs = [x.to(dtype).detach().requires_grad_() for x in heads(randn)]
    exact = [x.double().detach().requires_grad_() for x in inputs]
    pull = randn(2, 4, LENGTH, 8)

    def results(query: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        y = pattern(query, KeysValues(keys, values))
        return [y, *torch.autograd.grad((y * pull.to(y.dtype)).sum(), (query, keys, values))]

    for actual, expected in zip(results(*inputs), results(*exact), strict=True):
        assert actual.dtype == dtype
        error = (actual.double() - expected).abs().max() / expected.abs().max()
        assert error < tolerance


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", PATTERNS)
def test_step_by_step_equals_the_whole(kind: str, relation: str, randn: Randn) -> None:
    torch.manual_seed(0)
    related: dict[str, Any] = {"relation": RELATIONS[relation]()} if kind in SOFTMAX else {}
    pattern = PATTERNS[kind](causal=True, **related)
    query, keys, values = heads(randn)
    whole = pattern(query, KeysValues(keys, values))
    cache = pattern.empty_cache(2, 2, 8, like=query)
    for t in range(LENGTH):
        at = slice(t, t + 1)
        new = KeysValues(keys[:, :, at], values[:, :, at])
        step = pattern.step(query[:, :, at], new, cache, Ancestry(t + 1))
        torch.testing.assert_close(step, whole[:, :, at], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", PATTERNS)
@pytest.mark.parametrize("changed", [0, 63, 64, 100, LENGTH - 1])
def test_a_decoder_does_not_see_the_future(kind: str, changed: int, randn: Randn) -> None:
    pattern = PATTERNS[kind](causal=True)
    query, keys, values = heads(randn)
    before = pattern(query, KeysValues(keys, values))
    keys, values = keys.clone(), values.clone()
    keys[:, :, changed] += 1
    values[:, :, changed] += 1
    after = pattern(query, KeysValues(keys, values))
    torch.testing.assert_close(after[:, :, :changed], before[:, :, :changed], rtol=0, atol=1e-12)
    assert not torch.allclose(after[:, :, changed], before[:, :, changed])


@pytest.mark.parametrize("window", [1, 5, 16, 40])
def test_the_cache_of_a_window_is_never_larger_than_the_window(window: int, randn: Randn) -> None:
    cache = SlidingWindowAttention(causal=True, window=window).empty_cache(2, 1, 4, like=randn(1))
    tokens = randn(100, 2, 1, 1, 4)
    for t, token in enumerate(tokens):
        kept, positions = cache.append(KeysValues(token, -token), t)
        assert cache.keys.shape[2] <= window
        assert cache.values.shape[2] <= window
        assert sorted(positions.tolist()) == list(range(max(0, t + 1 - window), t + 1))
        expected = tokens[positions].squeeze(3).permute(1, 2, 0, 3)
        assert torch.equal(kept.keys, expected)
        assert torch.equal(kept.values, -expected)
        if t == 50:  # a beam that is reordered and grows
            cache, tokens = cache.at(torch.tensor([1, 0, 1])), tokens[:, [1, 0, 1]]
            break
    kept, positions = cache.append(KeysValues(tokens[51], -tokens[51]), 51)
    assert torch.equal(kept.keys, tokens[positions].squeeze(3).permute(1, 2, 0, 3))


class Largest(TorchDispatchMode):
    """Counts the numbers in all results that PyTorch computes, and in the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for result in out if isinstance(out, tuple | list) else [out]:
            if isinstance(result, Tensor):
                self.largest = max(self.largest, result.numel())
                self.total += result.numel()
        return out


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", ["window", "wide", "linear", "fast_weights", "strided"])
def test_cost_grows_with_the_length_alone(kind: str, causal: bool, randn: Randn) -> None:
    """Training on twice the words takes twice the numbers; only an N × N mask takes four times."""

    def cost(length: int) -> tuple[int, int]:
        query, keys, values = heads(randn, length)
        pattern = PATTERNS[kind](causal=causal)
        with Largest() as count:
            pattern(query, KeysValues(keys, values)).sum().backward()
        return count.largest, count.total

    length = 4 * WIDE if kind == "wide" else 256  # whole blocks
    (largest, total), (twice_largest, twice_total) = cost(length), cost(2 * length)
    linear = kind != "strided"
    assert (twice_largest <= 2 * largest) == linear
    assert (twice_total <= 2 * total) == linear
