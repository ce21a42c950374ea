"""BLEU against sentence length, a line a system (Bahdanau et al. 2015, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from translate.errors import UserError
from translate.plots.figure import (
    COLOURS,
    GREY,
    INK,
    MARKS,
    axis_style,
    defaults,
    file_type,
    save,
    text_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]  # (words of the source, BLEU)

WIDTH, HEIGHT = 6.0, 3.6  # inches, of the axes
NAME = 9  # points: the size of the names at the line ends


@defaults()
def bleu_by_length(
    lines: Mapping[str, Sequence[Point]], path: Path, *, trained_to: float | None = None
) -> None:
    """Draw a line a system to a .png, .svg or .pdf file, its name at its right end.

    Args:
        lines: name → (mean words of the source, BLEU) of each bucket, lengths rising.
        path: the picture.
        trained_to: the longest sentence of training, where a dashed line is drawn.

    Raises:
        UserError: nothing to draw, or a path that cannot be written.
    """
    from matplotlib.figure import Figure

    file_type(path)
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        raise UserError(f"no BLEU by length to draw in {path.name}: evaluate a model first")
    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1))
    colours = dict(zip(lines, cycle(COLOURS), strict=False))
    for (name, points), mark in zip(lines.items(), cycle(MARKS), strict=False):
        axes.plot(
            *zip(*points, strict=True),
            color=colours[name], marker=mark, markersize=4.5, linewidth=1.6, clip_on=False,
        )  # fmt: skip
    _frame(axes, max(bleu for points in lines.values() for _, bleu in points))
    if trained_to is not None:
        axes.axvline(trained_to, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
        axes.annotate(
            f"longest in training: {trained_to:g}", (trained_to, 1), (4, -3),
            xycoords=("data", "axes fraction"), textcoords="offset points",
            va="top", fontsize=8, color=INK,
        )  # fmt: skip
    _name_lines(axes, {name: points[-1] for name, points in lines.items()}, colours)
    save(figure, path)


def _frame(axes: Axes, best: float) -> None:
    """Titles, ticks and a scale that starts at BLEU 0, so that heights compare."""
    axes.set_ylim(0, 1.08 * best or 1.0)
    axes.set_xlabel("words in the source sentence", fontsize=9, color=INK)
    axes.set_ylabel("BLEU", fontsize=9, color=INK)
    axis_style(axes)


def _name_lines(axes: Axes, ends: Mapping[str, Point], colours: Mapping[str, str]) -> None:
    """Each name right of its line's end, moved up or down as far as its neighbours need."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    gap = 1.35 * NAME / 72 / HEIGHT * (top - bottom)
    names = sorted(ends, key=lambda name: ends[name][1])
    heights = spread([ends[name][1] for name in names], gap)
    for name, height in zip(names, heights, strict=True):
        x, y = ends[name]
        place = right + 0.01 * (right - left)
        axes.plot(
            (x, place),
            (y, height),
            color=colours[name],
            linewidth=0.8,
            linestyle=":",
            clip_on=False,
        )
        axes.annotate(
            name, (place, height), (3, 0), textcoords="offset points", va="center",
            fontsize=NAME, annotation_clip=False, **text_style([name]),
        )  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Rising values moved as little as can be (in squares) to stand `gap` apart.

    With i·gap subtracted they need only rise: isotonic regression, by pooling neighbours that fall.
    """
    pools: list[tuple[float, int]] = []  # mean and number of values that moved together
    for i, value in enumerate(values):
        mean, count = value - i * gap, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean = (mean * count + other * others) / (count + others)
            count += others
        pools.append((mean, count))
    level = [mean for mean, count in pools for _ in range(count)]
    return [value + i * gap for i, value in enumerate(level)]
