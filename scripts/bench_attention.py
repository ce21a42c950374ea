#!/usr/bin/env python
"""What each way to read a sequence costs as it grows: time and peak memory against length N.

    scripts/bench_attention.py --plot cost.png
    scripts/bench_attention.py --device cuda --plot cost.png
    scripts/bench_attention.py --only readable,fused --lengths 1024,2048 --repeats 9

Forward and backward for one sequence of N vectors of 256 numbers, 4 heads of 64, projections left
out; float32 on a CPU, bfloat16 on CUDA, where the fused attention is asked for as PyTorch's flash
kernel and must have been that, or the script ends with an error.

scripts/costs.py says how time and memory are measured. The slope is that of log(cost) on log(N)
over the longer half of the lengths: 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from costs import Cost, add_options, cost, description
from options import begin, names, numbers, picture
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from translate.attention.cache import KeysValues
from translate.attention.dot_product import fused_attention, readable_attention
from translate.attention.multi_head import Pattern
from translate.attention.scores import AdditiveAttention, AlignmentScore, ProjectedAttention
from translate.errors import UserError
from translate.extras.figures import COLOURS, GREY, INK, MARKS, PALE, defaults, save
from translate.extras.kernels import kernel_of, kernels_that_ran
from translate.extras.patterns import LinearAttention, SlidingWindowAttention
from translate.models.convolutional import ConvolutionalConfig, GatedEncoderLayer
from translate.models.recurrence import Recurrence

D_MODEL, HEADS, D_K = 256, 4, 64
WINDOW = 32  # keys of the sliding window
WIDTH = 3  # words of a convolution
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
COMPARED = 2048  # where fused and readable attention are compared
LONGEST_ADDITIVE = 2048  # its N² x 64 numbers of pairs would be 16 GiB at 8,192

Inputs = list[Tensor]
Layer = Callable[..., Tensor]
Build = Callable[[int, torch.device, torch.dtype], tuple[Layer, Inputs]]


def words(n: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(1, n, D_MODEL, device=device, dtype=dtype, requires_grad=True)


def heads(n: int, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Queries, keys and values."""
    shape = (1, HEADS, n, D_K)
    return [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]


def rnn(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
    """N steps, each after the other: O(N) sequential."""
    lstm = Recurrence(
        cell="lstm", input_size=D_MODEL, hidden_size=D_MODEL, num_layers=1, dropout=0.0
    ).to(device, dtype)
    return lambda x: lstm(x, lstm.zeros(x))[0], [words(n, device, dtype)]


def convolution(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
    sizes = {"hidden_size": D_MODEL, "encoder_width": WIDTH, "dropout": 0.0}
    layer = GatedEncoderLayer(ConvolutionalConfig.model_construct(None, **sizes)).to(device, dtype)
    mask = torch.ones(1, n, dtype=torch.bool, device=device)
    return lambda x: layer(x, mask), [words(n, device, dtype)]


def readable(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
    return lambda *qkv: readable_attention(*qkv)[0], heads(n, device, dtype)


def fused(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
    return flash if device.type == "cuda" else fused_attention, heads(n, device, dtype)


def flash(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Asked for by name: of itself PyTorch prefers cuDNN's kernel on an H100 and later."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return fused_attention(query, keys, values)


def pattern(kind: Pattern) -> Build:
    """A kind of self-attention between the projections."""

    def build(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
        return lambda q, k, v: kind(q, KeysValues(k, v)), heads(n, device, dtype)

    return build


def score(kind: type[AlignmentScore]) -> Build:
    """A score of N decoder states against N encoder states; one matrix, no softmax, no context."""

    def build(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Layer, Inputs]:
        sizes = {"query_size": D_MODEL, "memory_size": D_MODEL, "attention_size": D_K}
        layer = kind(**sizes).to(device, dtype)
        return lambda s, h: layer(s, layer.keys(h)), [words(n, device, dtype) for _ in range(2)]

    return build


MECHANISMS: dict[str, Build] = {
    "rnn": rnn,
    "convolution": convolution,
    "readable": readable,
    "fused": fused,
    "sliding_window": pattern(SlidingWindowAttention(causal=False, window=WINDOW)),
    "linear": pattern(LinearAttention(causal=False)),
    "linear_causal": pattern(LinearAttention(causal=True)),
    "additive_score": score(AdditiveAttention),
    "projected_score": score(ProjectedAttention),
}


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    costs: dict[str, dict[int, Cost]] = {}
    for name in args.only:
        costs[name] = {}
        for n in args.lengths:
            if name != "additive_score" or n <= LONGEST_ADDITIVE:
                print(f"{name}, N = {n}", file=sys.stderr)
                costs[name][n] = cost(
                    prepared, (name, n), (name, 16), device=args.device, repeats=args.repeats
                )
    asserted = ", fused = flash (asserted)" if args.device == "cuda" else ""
    print(f"{description(args.device)}{asserted}; median of {args.repeats}\n")
    for title, field in (("milliseconds", "milliseconds"), ("peak MiB", "mebibytes")):
        print(table(title, costs, args.lengths, field))
    print(comparison(costs))
    if args.plot:
        draw(costs, args.plot)
        print(f"{args.plot} is written", file=sys.stderr)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, repeats=5)
    parser.add_argument(
        "--lengths", type=numbers, default=list(LENGTHS), metavar="N,N,…",
        help=f"default: {','.join(map(str, LENGTHS))}; readable attention needs 4 GiB at 8192",
    )  # fmt: skip
    parser.add_argument(
        "--only", type=names("mechanism", list(MECHANISMS)), default=list(MECHANISMS),
        metavar="A,B,…", help=f"default: all of {', '.join(MECHANISMS)}",
    )  # fmt: skip
    parser.add_argument("--plot", type=picture, metavar="PATH", help="a .png, .svg or .pdf file")
    args = parser.parse_args(argv)
    if min(args.lengths) < 1 or len(set(args.lengths)) < 2:  # one has no slope
        parser.error(f"--lengths {args.lengths}: give two or more, each 1 or more")
    return args


def prepared(device: str, name: str, n: int) -> Callable[[], None]:
    """A mechanism at one length, to be run."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer, inputs = MECHANISMS[name](n, torch.device(device), dtype)
    if name == "fused" and device == "cuda":
        assert_flash(inputs)
    return partial(forward_and_backward, layer, inputs)


def forward_and_backward(layer: Layer, inputs: Inputs) -> None:
    output = layer(*inputs)
    torch.autograd.grad(output, inputs, torch.ones_like(output))


def assert_flash(inputs: Inputs) -> None:
    """That `flash` runs as PyTorch's flash kernel: seen to run."""
    left_to_itself = kernel_of(*inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # why not flash, which `kernel_of` has heard
            ran = kernels_that_ran(lambda: flash(*inputs))
    except RuntimeError:  # no available kernel
        ran = {left_to_itself.name}
    if ran != {"flash"}:
        raise UserError(
            f"fused attention of {tuple(inputs[0].shape)} runs as {', '.join(sorted(ran))}, not "
            f"as flash: {left_to_itself.why_not_flash}"
        )


def table(
    title: str, costs: Mapping[str, Mapping[int, Cost]], lengths: Sequence[int], field: str
) -> str:
    """Markdown: a row a mechanism, a column a length, the slope at the end."""
    rows = [[title, *(f"N = {n:,}" for n in lengths), "slope"], ["---", *["---:"] * len(lengths)]]
    rows[1].append("---:")
    for name, by_length in costs.items():
        values = {n: getattr(cost, field) for n, cost in by_length.items()}
        cells = [f"{values[n]:,.1f}" if n in values else "–" for n in lengths]
        rows.append([name, *cells, f"{slope(values):.2f}"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def slope(values: Mapping[int, float]) -> float:
    """Of log(value) on log(N), by least squares over the longer half of the lengths."""
    longer = sorted(values)[-max(2, len(values) // 2) :]
    measured = [values[n] for n in longer]
    # no slope of one point, nor of what is less than the memory of a process can show
    if len(measured) < 2 or min(measured) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(longer), np.log(measured), 1)[0])


def comparison(costs: Mapping[str, Mapping[int, Cost]]) -> str:
    """What the fused kernel takes of the readable form's time and memory."""
    readable, fused = (costs.get(name, {}).get(COMPARED) for name in ("readable", "fused"))
    if readable is None or fused is None:
        return f"fused / readable is compared at N = {COMPARED:,}: not measured"
    time, memory = (f / r if r else float("nan") for f, r in zip(fused, readable, strict=True))
    return f"fused / readable at N = {COMPARED:,}: time {time:.3f}, peak memory {memory:.4f}"


@defaults()
def draw(costs: Mapping[str, Mapping[int, Cost]], path: Path) -> None:
    """Time and memory against length, both axes logarithmic: a slope is an exponent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.8))
    panels = figure.subplots(1, 2, sharex=True)
    for axes, field, title in zip(panels, Cost._fields, ("milliseconds", "peak MiB"), strict=True):
        for i, (name, by_length) in enumerate(costs.items()):
            values = {n: getattr(cost, field) for n, cost in by_length.items()}
            shown = {n: value for n, value in values.items() if value > 0}
            axes.plot(
                list(shown), list(shown.values()),
                color=COLOURS[i % len(COLOURS)], marker=MARKS[i % len(MARKS)],
                linestyle="-" if i < len(COLOURS) else "--", markersize=4, linewidth=1.4,
                label=f"{name.replace('_', ' ')} ({slope(values):.2f})",
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yscale("log")
        axes.set_xlabel("length N", fontsize=9, color=INK)
        axes.set_ylabel(title, fontsize=9, color=INK)
        axes.tick_params(labelsize=8, color=GREY, labelcolor=INK)
        axes.grid(color=PALE, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(
            fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1, 1),
            title="(slope)", title_fontsize=7.5,
        )  # fmt: skip
    figure.subplots_adjust(wspace=0.75)
    save(figure, path)


if __name__ == "__main__":
    begin(main)
