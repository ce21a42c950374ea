"""FlexAttention compiled, beside the formula: `compiled_flex.py DEVICE DTYPE TOLERANCE`.

A program of its own, for PyTorch's compiler cannot read functions whose types are checked, as they
are in tests. On a CPU, where PyTorch has no kernel of the backward pass, its formulas compute the
traced graph.
Prints how many programs were compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention as pytorchs

from translate.attention.cache import KeysValues
from translate.attention.dot_product import readable_attention
from translate.attention.masks import causal_mask, over_keys, padding_mask
from translate.attention.multi_head import FullAttention
from translate.attention.positions import LinearBiases, RelativeKeys
from translate.extras import flex
from translate.extras.flex import with_flex
from translate.extras.patterns import FixedAttention, SlidingWindowAttention, StridedAttention

D_K, LENGTHS = 32, (150, 260, 40, 90, 200, 7)  # a block is 128


def window() -> FullAttention:
    relation = RelativeKeys(d_k=D_K, max_distance=5)
    return with_flex(SlidingWindowAttention(causal=True, relation=relation, window=7))


def fixed() -> FullAttention:
    relation = LinearBiases(num_heads=4)
    return with_flex(FixedAttention(causal=False, relation=relation, stride=8, summary=3))


def strided() -> FullAttention:
    relation = RelativeKeys(d_k=D_K, max_distance=5)
    return with_flex(StridedAttention(causal=False, relation=relation, stride=8))


def results(
    pattern: FullAttention, inputs: list[Tensor], mask: Tensor, *, twin: bool
) -> list[Tensor]:
    """The heads, and the gradients of queries, keys, values and the pattern's own weights."""
    query, keys, values = inputs = [x.detach().requires_grad_() for x in inputs]
    if twin:
        at = torch.arange(query.shape[2], device=query.device)
        seen = mask & pattern.visible(at[:, None], at)
        seen = seen & causal_mask(len(at), query.device) if pattern.causal else seen
        bias = pattern.bias(query, at, at)
        heads, _ = readable_attention(query, keys, values, mask=seen, bias=bias)
    else:
        heads = pattern(query, KeysValues(keys, values), mask=mask)
    pull = torch.linspace(-1, 1, heads.numel(), device=query.device).view_as(heads)
    learned = [*inputs, *pattern.parameters()]
    return [heads, *torch.autograd.grad((heads * pull.to(heads.dtype)).sum(), learned)]


def compare(
    new_pattern: Callable[[], FullAttention], length: int, dtype: torch.dtype, tolerance: float
) -> None:
    """With the formula in float64 of the same rounded numbers, beside a sentence of three words."""
    torch.manual_seed(0)
    pattern = new_pattern().to(dtype)
    exact = new_pattern().double()
    exact.load_state_dict(pattern.state_dict())
    rounded = [torch.randn(2, heads, length, D_K).to(dtype) for heads in (4, 2, 2)]
    mask = over_keys(padding_mask(torch.tensor([length, 3]), length))
    ours = results(pattern, rounded, mask, twin=False)
    theirs = results(exact, [x.double() for x in rounded], mask, twin=True)
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.dtype == dtype
        error = (actual.double() - expected).abs().max() / expected.abs().max()
        assert error <= tolerance, (new_pattern.__name__, length, float(error))
    empty = (theirs[0] == 0).all(-1)
    assert empty.any() or length < 40  # words that see padding alone
    assert (ours[0][empty] == 0).all()


def main(device: str, dtype: str, tolerance: str) -> None:
    flex.DEVICES = {device}
    torch.set_default_device(device)
    if device == "cpu":
        torch.set_num_threads(1)
        pytorchs._validate_device = lambda query, keys, values: None  # it allows no gradient here
        traced = torch.compile(pytorchs.flex_attention, backend="aot_eager", dynamic=True)
        flex.kernel = lambda device: traced
    for new_pattern in (window, fixed, strided):
        for length in LENGTHS:
            compare(new_pattern, length, getattr(torch, dtype), float(tolerance))
    sys.stdout.write(f"{counters['stats']['unique_graphs']}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
