"""The cost of attention is measured from end to end, at tiny lengths."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch


def test_a_whole_run_prints_tables_and_draws(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = ["--repeats", "1", "--plot", str(tmp_path / "cost.png")]
    script.main(["--only", "readable,fused", "--lengths", "32,2048", *plot])
    shown = capsys.readouterr().out
    rows = re.findall(r"^\| (readable|fused) \| ([\d.,]+) \| ([\d.,]+) \| ", shown, re.MULTILINE)
    assert [row[0] for row in rows] == ["readable", "fused"] * 2  # time, then memory
    readable, fused = (float(row[2].replace(",", "")) for row in rows[2:])
    assert readable > 4 * 2048**2 * 4 / 2**20 > fused  # of four heads' float32 matrices, one
    assert re.search(r"^fused / readable at N = 2,048: time 0\.\d+, peak memory 0\.\d+$",
                     shown, re.MULTILINE)  # fmt: skip
    assert (tmp_path / "cost.png").stat().st_size > 5000


def test_every_mechanism_runs_and_gives_a_gradient(script: ModuleType) -> None:
    for build in script.MECHANISMS.values():
        layer, inputs = build(70, torch.device("cpu"), torch.float32)
        output = layer(*inputs)
        assert 70 in output.shape
        for gradient in torch.autograd.grad(output.sum(), inputs):
            assert gradient.abs().sum() > 0


def test_a_slope_is_the_exponent_of_the_longer_half(script: ModuleType) -> None:
    flat_then_square = {8: 7.0, 16: 7.0, 32: 3.0 * 32**2, 64: 3.0 * 64**2}
    assert script.slope(flat_then_square) == pytest.approx(2)
    assert (
        script.table("ms", {"a": {8: script.Cost(1, 2)}}, [8, 16], "mebibytes")
        .splitlines()[2]
        .startswith("| a | 2.0 | – |")
    )


def test_another_kernel_than_flash_is_an_error_where_flash_is_promised(script: ModuleType) -> None:
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    script.assert_flash([query, query, query])
    values = torch.randn(1, 2, 4, 16)  # of another size than keys: PyTorch falls back
    with pytest.raises(
        script.UserError, match="runs as math, not as flash: Flash attention requires"
    ):
        script.assert_flash([query, query, values])


def test_flash_is_asked_for_where_pytorch_would_take_another(script: ModuleType) -> None:
    """On an H100 it prefers cuDNN; here flash is switched off."""
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        script.assert_flash([query, query, query])
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
