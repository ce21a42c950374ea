#!/usr/bin/env python
"""Draw which keys each query sees under every pattern of self-attention.

scripts/draw_patterns.py docs/pictures/patterns.png
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from options import begin, picture
from torch import Tensor

from translate.attention.masks import causal_mask
from translate.attention.multi_head import FullAttention
from translate.extras.figures import GREY, INK, defaults, save, single_hue
from translate.extras.patterns import FixedAttention, SlidingWindowAttention, StridedAttention

LENGTH = 16
PATTERNS = {
    "full": lambda causal: FullAttention(causal=causal),
    "sliding window, w = 5": lambda causal: SlidingWindowAttention(causal=causal, window=5),
    "strided, l = 4": lambda causal: StridedAttention(causal=causal, stride=4),
    "fixed, l = 4, c = 1": lambda causal: FixedAttention(causal=causal, stride=4, summary=1),
}


def seen(pattern: FullAttention) -> Tensor:
    """1 where query (row) i sees key (column) j."""
    at = torch.arange(LENGTH)
    mask = pattern.visible(at[:, None], at)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool) if mask is None else mask
    return (mask & causal_mask(LENGTH) if pattern.causal else mask).float()


@defaults()
def draw(rows: Mapping[str, Mapping[str, Tensor]], path: Path) -> None:
    """A row of panels for the encoder, one for the decoder."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.9))
    panels = figure.subplots(len(rows), len(PATTERNS))
    for (side, masks), axes_of_row in zip(rows.items(), panels, strict=True):
        for mask, axes in zip(masks.values(), axes_of_row, strict=True):
            axes.pcolormesh(
                mask.numpy(), cmap=single_hue(), vmin=0, vmax=1.4, edgecolors=GREY, linewidth=0.2
            )
            axes.set(aspect="equal", xticks=[], yticks=[])
            axes.invert_yaxis()
        axes_of_row[0].set_ylabel(f"{side}\nquery", fontsize=8.5, color=INK)
    for name, axes in zip(PATTERNS, panels[0], strict=True):
        axes.set_title(name, fontsize=8.5, color=INK)
    for axes in panels[-1]:
        axes.set_xlabel("key", fontsize=8.5, color=INK)
    figure.subplots_adjust(wspace=0.08, hspace=0.08)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=picture, help="a .png, .svg or .pdf file")
    path = parser.parse_args().path
    rows = {
        side: {name: seen(pattern(causal)) for name, pattern in PATTERNS.items()}
        for side, causal in (("encoder", False), ("decoder", True))
    }
    draw(rows, path)


if __name__ == "__main__":
    begin(main)
