"""The products by oneDNN against PyTorch's own, in value and gradient; what oneDNN keeps."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from translate import linear
from translate.linear import Linear, prepack

needs_onednn = pytest.mark.skipif(not linear.AVAILABLE, reason="PyTorch was built without oneDNN")


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (3, 1, 6), (2, 3, 4, 6), (0, 6)])
def test_value_and_gradients(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(6, 7, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    # in float64, as the truth; transposed, so that what arrives is not contiguous
    exact = [p.detach().double().requires_grad_() for p in (x, *layer.parameters())]
    expected = F.linear(*exact)
    gradient = torch.randn(expected.shape[::-1]).permute(*range(expected.dim())[::-1])
    actual = layer(x)
    torch.testing.assert_close(actual, expected.float())
    ours = torch.autograd.grad(actual, (x, *layer.parameters()), gradient)
    truth = torch.autograd.grad(expected, exact, gradient.double())
    for one, other in zip(ours, truth, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-5, atol=1e-5)


@needs_onednn
def test_it_is_taken_for_training_in_float32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    multiplies = linear.multiplies

    def noted(*args: torch.Tensor) -> bool:
        if multiplies(*args):
            taken.append(1)
        return multiplies(*args)

    monkeypatch.setattr(linear, "multiplies", noted)
    layer, x = Linear(3, 2), torch.randn(4, 3)
    layer(x)
    assert taken
    taken.clear()
    layer.eval()(x)  # rounding must not tell a sentence translated alone from one in a batch
    layer.train().double()(x.double())
    with torch.autocast("cpu", torch.bfloat16):
        layer.float()(x)
    assert not taken
    monkeypatch.setattr(linear, "AVAILABLE", False)
    layer(x)
    assert not taken


def test_what_needs_no_gradient_gets_none() -> None:
    layer = Linear(3, 2)
    layer.weight.requires_grad_(requires_grad=False)
    layer(torch.randn(4, 3)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


@pytest.fixture
def prepacked() -> Linear:
    torch.manual_seed(0)
    layer = Linear(24, 500).eval()
    prepack(layer)
    return layer


def takes_prepacked(layer: Linear, x: torch.Tensor) -> bool:
    """Whether the product is by the prepacked copy: told by one that holds something else."""
    ((key, prepacked),) = layer._prepacked.items()
    expected = layer(x)
    doubled = torch.ops.mkldnn._reorder_linear_weight(2 * layer.weight.detach(), 64)
    layer._prepacked = {key: replace(prepacked, layout=doubled)}
    differs = not torch.equal(layer(x), expected)
    layer._prepacked = {key: prepacked}
    return differs


@needs_onednn
@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (5, 24), (16, 24), (17, 24), (7, 9, 24)])
def test_prepacked_it_is_the_same_product(shape: tuple[int, ...], bias: bool) -> None:
    layer = Linear(24, 500, bias=bias)
    prepack(layer)
    x = torch.randn(shape[::-1]).permute(*range(len(shape))[::-1])  # not contiguous
    assert takes_prepacked(layer, x)
    exact = F.linear(*(p.double() for p in (x, *layer.parameters())))
    torch.testing.assert_close(layer(x), exact.float())


@needs_onednn
@torch.inference_mode()
def test_prepacked_a_row_is_the_same_among_any_others(prepacked: Linear) -> None:
    x = torch.randn(100, 24)
    together = prepacked(x)
    for rows in (1, 2, 3, 4, 15, 16, 17, 64, 99):
        assert torch.equal(prepacked(x[:rows]), together[:rows])


@needs_onednn
@torch.no_grad()
def test_weights_of_bf16_are_prepacked_where_the_processor_takes_them() -> None:
    layer, x = Linear(24, 500).bfloat16(), torch.randn(17, 24).bfloat16()
    expected = layer(x)
    prepack(layer)
    assert bool(layer._prepacked) == torch.ops.mkldnn._is_mkldnn_bf16_supported()
    torch.testing.assert_close(layer(x), expected)


@needs_onednn
def test_what_the_prepacked_copy_cannot_do_is_done_without_it(prepacked: Linear) -> None:
    x = torch.randn(3, 24)
    with torch.no_grad():
        assert takes_prepacked(prepacked, x)
        assert prepacked(x[:0]).shape == (0, 500)
        with torch.autocast("cpu", torch.bfloat16):
            assert prepacked(x).dtype == torch.bfloat16
    prepacked(x).sum().backward()
    torch.testing.assert_close(prepacked.weight.grad, x.sum(0).expand(500, 24))
    prepacked.requires_grad_(requires_grad=False)  # what it reads may still want a gradient
    prepacked(x.requires_grad_()).sum().backward()
    torch.testing.assert_close(x.grad, prepacked.weight.sum(0).expand(3, 24))


@needs_onednn
@torch.no_grad()
def test_a_changed_weight_is_never_read_from_the_prepacked_copy(prepacked: Linear) -> None:
    x, old = torch.randn(3, 24), copy.deepcopy(prepacked)
    assert not old._prepacked
    torch.testing.assert_close(old(x), prepacked(x))
    prepacked.weight.mul_(2)
    torch.testing.assert_close(prepacked(x), F.linear(x, prepacked.weight, prepacked.bias))
    prepacked.load_state_dict(old.state_dict())
    torch.testing.assert_close(prepacked(x), old(x))
    prepack(prepacked)
    assert takes_prepacked(prepacked, x)
    assert prepacked.double()(x.double()).dtype == torch.float64


@needs_onednn
@pytest.mark.parametrize("fused", [False, True])
def test_training_ends_the_prepacked_copy(prepacked: Linear, fused: bool) -> None:
    """A fused optimizer changes weights and counts no change."""
    x = torch.randn(3, 24)
    optimizer = torch.optim.AdamW(prepacked.parameters(), lr=0.1, fused=fused)
    prepacked.train()(x).sum().backward()
    optimizer.step()
    with torch.no_grad():
        expected = F.linear(x, prepacked.weight, prepacked.bias)
        torch.testing.assert_close(prepacked.eval()(x), expected)


@needs_onednn
@torch.no_grad()
def test_another_tensor_in_the_place_of_the_weight_is_noticed() -> None:
    """Although neither has ever been changed."""
    layer, x = Linear(24, 500), torch.randn(3, 24)
    first, second = (
        {"weight": torch.randn(500, 24), "bias": torch.zeros(500)} for _ in ("first", "second")
    )
    layer.load_state_dict(first, assign=True)
    prepack(layer)
    assert takes_prepacked(layer, x)
    layer.load_state_dict(second, assign=True)
    torch.testing.assert_close(layer(x), x @ second["weight"].T)


def test_what_onednn_does_not_take_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Linear(4, 6).double()
    prepack(wide)
    assert not wide._prepacked
    with torch.inference_mode():
        counting_no_changes = Linear(4, 6)
    prepack(counting_no_changes)
    assert not counting_no_changes._prepacked
    monkeypatch.setattr(linear, "AVAILABLE", False)
    prepack(layer := Linear(4, 6))
    assert not layer._prepacked


# a process of its own: limits are read once
NEW_SIZES = """
from pathlib import Path
import torch
from translate.linear import product

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

x, weight = torch.ones(250, 16), torch.ones(32, 16)
product(x, weight)
before = resident()
for rows in range(1, 250):
    product(x[:rows], weight)
print(resident() - before)
"""


@needs_onednn
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_few_kernels_are_kept_unless_more_are_asked_for() -> None:
    more = dict.fromkeys(linear.LIMITS, "1024")
    own = {name: value for name, value in os.environ.items() if name not in more}
    few, many = (
        int(
            subprocess.run(
                [sys.executable, "-c", NEW_SIZES],
                env=environment, capture_output=True, text=True, check=True,
            ).stdout
        )
        for environment in (own, own | more)
    )  # fmt: skip
    assert few < many / 3
