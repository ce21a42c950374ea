#!/usr/bin/env python
"""Draw what a Transformer is told of the order of words: the waves, and what they make of distance.

scripts/draw_positions.py docs/pictures/positions.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from options import begin, picture

from translate.attention.positions import alibi_slopes, rotate, sinusoidal
from translate.extras.figures import COLOURS, INK, defaults, save

POSITIONS, D = 48, 32
HEADS = 4


@defaults()
def draw(path: Path) -> None:
    """The sinusoidal vectors; a rotary score and ALiBi's biases against the distance."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 2.6))
    waves, score, bias = figure.subplots(1, 3)
    wave = sinusoidal(0, POSITIONS, torch.empty(D))
    waves.pcolormesh(wave.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
    waves.invert_yaxis()
    waves.set(xlabel="dimension", ylabel="position")
    waves.set_title("sinusoidal, blue −1 to red 1", fontsize=9, color=INK)

    word = torch.ones(1, 1, 1, D)
    distance = torch.arange(1 - POSITIONS, POSITIONS)
    rotated = rotate(word.expand(-1, -1, POSITIONS, -1), wave)[0, 0]
    scores = rotated @ rotated[0] / D  # at the distances 0 … POSITIONS - 1
    score.plot(distance, scores[distance.abs()], color=COLOURS[0], linewidth=1.6)
    score.set(xlabel="key's position − query's", ylim=(0, 1.05))
    score.set_title("rotary: q · k / D, both all ones", fontsize=9, color=INK)

    for colour, slope in zip(COLOURS, alibi_slopes(HEADS), strict=False):
        heights = -slope * distance.abs()
        bias.plot(distance, heights, color=colour, linewidth=1.6, label=f"{slope:.3g}")
    bias.legend(title="slope", loc="lower center", fontsize=7, title_fontsize=7, frameon=False)
    bias.set(xlabel="key's position − query's")
    bias.set_title(f"ALiBi: the biases of {HEADS} heads", fontsize=9, color=INK)
    for axes in (waves, score, bias):
        axes.tick_params(labelsize=7)
        axes.xaxis.label.set(size=8, color=INK)
        axes.yaxis.label.set(size=8, color=INK)
    figure.subplots_adjust(wspace=0.3)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=picture, help="a .png, .svg or .pdf file")
    draw(parser.parse_args().path)


if __name__ == "__main__":
    begin(main)
