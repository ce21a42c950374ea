"""The kernel announced is the kernel that runs; and PyTorch's reason is passed on."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

from translate.attention.dot_product import fused_attention
from translate.attention.masks import added_to_scores, over_keys, padding_mask
from translate.attention.multi_head import CrossAttention, FullAttention, SelfAttention
from translate.attention.packed import Packing, SameSentence, flash
from translate.extras.kernels import Kernel, kernel_of, kernels_that_ran, recorded_calls

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device"))]  # fmt: skip


def tensors(device: str, dtype: torch.dtype, groups: int = 4, d_v: int = 8) -> list[Tensor]:
    shapes = [(2, 4, 5, 8), (2, groups, 5, 8), (2, groups, 5, d_v)]
    return [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for shape in shapes]


def assert_announced(inputs: list[Tensor], **options: Any) -> str:
    """The kernel that runs, after checking that it was announced and that a reason was given."""
    grouped = inputs[0].shape[1] != inputs[1].shape[1]
    announced = kernel_of(*inputs, **options, grouped=grouped)
    ran = kernels_that_ran(lambda: fused_attention(*inputs, **options))
    assert ran == {announced.name}
    assert (announced.why_not_flash == "") == (announced.name == "flash")
    return announced.name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("seen", ["all", "causal", "mask"])
def test_the_kernel_announced_is_the_one_that_runs(device, dtype, groups, dropout, seen) -> None:
    mask = over_keys(padding_mask(torch.tensor([5, 2], device=device), 5))
    name = assert_announced(
        tensors(device, dtype, groups),
        mask=mask if seen == "mask" else None, causal=seen == "causal", dropout=dropout,
    )  # fmt: skip
    if device == "cpu":
        assert name == ("math" if dropout else "flash")


@pytest.mark.parametrize("device", DEVICES)
def test_values_of_another_size_lose_flash(device: str) -> None:
    inputs = tensors(device, torch.float32, d_v=16)
    assert assert_announced(inputs) != "flash"


def test_pytorchs_reason_is_passed_on_and_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropout = kernel_of(*tensors("cpu", torch.float32), dropout=0.1)
        sizes = kernel_of(*tensors("cpu", torch.float32, d_v=16))
    assert dropout.why_not_flash == "Both fused kernels do not support non-zero dropout."
    assert sizes.why_not_flash.endswith("Value.size(-1): 16 instead.")


def test_autocast_decides_the_dtype_that_reaches_the_kernel() -> None:
    inputs = tensors("cpu", torch.float32)
    with recorded_calls(nn.Module()) as calls, torch.autocast("cpu", torch.bfloat16):
        torch.nn.functional.scaled_dot_product_attention(*inputs)
        fused_attention(*inputs)  # float32 on a CPU whatever autocast says
    assert [call.dtype for call in calls] == [torch.bfloat16, torch.float32]


class Layer(nn.Module):
    """Self-attention by `forward` and by `step`, then cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"d_model": 8, "num_heads": 2, "num_kv_heads": 1, "dropout": 0.5}
        self.inner = SelfAttention(**sizes, rotary=None, pattern=FullAttention(causal=True))
        self.outer = CrossAttention(**sizes, memory_size=8, d_v=4)

    def once(self, x: Tensor, mask: Tensor) -> None:
        padding = added_to_scores(mask, x.dtype)
        self.outer(self.inner(x), self.outer.keys_values(x), padding=padding)


def test_calls_are_recorded_with_their_place_and_their_kernel() -> None:
    model = nn.Sequential(Layer())
    x, mask = torch.randn(3, 5, 8), over_keys(padding_mask(torch.tensor([5, 4, 1]), 5))
    with recorded_calls(model) as calls:
        model[0].once(x, mask)
    inner, outer = calls
    assert (inner.place, outer.place) == ("0.inner.pattern", "0.outer")
    assert (inner.causal, inner.mask) == (True, None)
    assert (outer.causal, outer.mask) == (False, (3, 1, 1, 5))
    assert (outer.query, outer.keys, outer.values) == ((3, 2, 5, 4), (3, 1, 5, 4), (3, 1, 5, 4))
    assert {call.dropout for call in calls} == {0.5}
    assert {call.kernel.name for call in calls} == {"math"}
    model.eval()
    with recorded_calls(model) as calls:
        model[0].once(x, mask)
    assert {call.kernel.name for call in calls} == {"flash"}
    model[0].once(x, mask)
    assert len(calls) == 2  # nothing is recorded after the block


@pytest.mark.parametrize("causal", [True, False])
def test_the_flash_kernel_of_sentences_end_to_end_is_recorded(causal: bool) -> None:
    """Its shapes alone: without a GPU there is no kernel, and `meta` computes nothing."""
    query = torch.empty(6, 4, 8, dtype=torch.bfloat16, device="meta")
    keys = torch.empty(9, 2, 8, dtype=torch.bfloat16, device="meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    sentences = SameSentence(Packing(lengths, longest=4, total=6), Packing(lengths, 5, total=9))
    with recorded_calls(nn.Module()) as calls:
        flash(varlen_attn, query, keys, keys, sentences, causal=causal)
    (call,) = calls
    assert call.kernel == Kernel("flash, variable length", "")
    assert (call.query, call.mask, call.causal) == ((6, 4, 8), None, causal)
    assert call.keys[0] == 9


def test_readable_attention_makes_no_fused_call() -> None:
    model = Layer()
    x = torch.randn(1, 3, 8)
    with recorded_calls(model) as calls:
        model.outer(x, model.outer.keys_values(x), need_weights=True)
    assert calls == []
