"""Charts as inline SVG of a page: text stays text, colours follow the page's light or dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from translate.extras.figures import Point, defaults, each_isolated, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 32, 10, 38  # margins of the axes; half a number stands out
CELL = 22  # of a heatmap
MOST_POINTS = 60  # of a line whose points are marked
# Colours as matplotlib draws them, each replaced by a variable of page.html, which has another
# value on a dark page. Beyond eight lines they come again, and bars are told apart by their order.
COLOURS = {
    "one": "#14448c", "two": "#b5500b", "three": "#00775a", "four": "#a03c78",
    "five": "#8a6d00", "six": "#2c79ad", "seven": "#6b4fbb", "eight": "#6a6f76",
}  # fmt: skip
PAPER, INK, QUIET, RULE = "#fdfdfb", "#1c2127", "#5a6370", "#dfe2e6"
VARIABLES = {
    **{colour: name for name, colour in COLOURS.items()},
    PAPER: "paper", INK: "ink", QUIET: "quiet", RULE: "rule",
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A picture under its title; where there are several names, each in its colour."""

    title: str
    legend: Sequence[tuple[str, str]]  # name, and the class of its colour
    svg: Markup


@defaults()
def line_chart(title: str, lines: Mapping[str, Sequence[Point]], *, x: str) -> Chart:
    """A line a name over whole numbers `x`."""
    figure, axes = _axes(x)
    for line, colour in zip(lines.values(), cycle(COLOURS.values()), strict=False):
        mark = "o" if len(line) <= MOST_POINTS else ""
        axes.plot(
            *zip(*line, strict=True),
            color=colour, linewidth=1.75, marker=mark, markersize=5, clip_on=False,
        )  # fmt: skip
    axes.locator_params(axis="x", integer=True, nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    steps, values = zip(*(point for line in lines.values() for point in line), strict=True)
    if min(steps) < max(steps):
        axes.set_xlim(min(steps), max(steps))
    if min(values) == max(values):  # a flat line is the lower end of its axis
        axes.set_ylim(values[0], values[0] + 0.2 * (abs(values[0]) or 1.0))
    return _chart(title, figure, lines)


@defaults()
def bar_chart(
    title: str, labels: Sequence[str], bars: Mapping[str, Sequence[float | None]], *, x: str
) -> Chart:
    """Bars from zero: for each label one a name, beside each other; None has no bar."""
    figure, axes = _axes(x)
    width = (0.94 if len(labels) > 12 else 0.76) / len(bars)
    places = np.arange(len(labels))
    colours = cycle(COLOURS.values())
    for number, heights in enumerate(bars.values()):
        offset = (number - (len(bars) - 1) / 2) * width
        drawn = [height or 0.0 for height in heights]
        axes.bar(places + offset, drawn, width, color=next(colours), clip_on=False)
    every = math.ceil(len(labels) / 10)  # labels that would touch are left out
    axes.set_xticks(places[::every], labels=labels[::every], parse_math=False)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    values = [height for heights in bars.values() for height in heights if height is not None]
    whole = all(isinstance(value, int) for value in values)  # counts
    axes.locator_params(axis="y", integer=whole, nbins=5)
    if not any(values):
        axes.set_ylim(0, 1)
    return _chart(title, figure, bars)


def histogram(title: str, values: Sequence[float], *, edges: Sequence[float], x: str) -> Chart:
    """A bar for the number of values between each edge and the next (the last one included)."""
    counts, _ = np.histogram(values, bins=list(edges))
    labels = [f"{edge:g}" for edge in edges[:-1]]
    return bar_chart(title, labels, {"sentences": counts.tolist()}, x=x)


@defaults()
def heatmap_chart(
    title: str, source: Sequence[str], target: Sequence[str], weights: Float[np.ndarray, "T S"]
) -> Chart:
    """Row by row the target's tokens, column by column the source's: the stronger, the more.

    The strongest is the largest weight, which the title says: on a dark page the brightest.
    """
    from matplotlib.colors import ListedColormap

    rows, columns = list(map(label, target)), list(map(label, source))
    left, top = 8 + 7.0 * max(map(_letters, rows)), 14 + 5.4 * max(map(_letters, columns))
    # labels lean to the right: the last one over the edge, and a long one from further left
    right = max(5 * _letters(word) - CELL * k for k, word in enumerate(reversed(columns)))
    width, height = left + CELL * len(columns) + right, top + CELL * len(rows) + 4
    strongest = float(weights.max())
    figure, axes = _placed(width, height, left, top, right, 4)
    squares = axes.pcolormesh(
        weights, cmap=ListedColormap([COLOURS["one"]]), edgecolors="none", linewidth=0,
        clip_on=False,
    )  # fmt: skip
    squares.set_alpha((weights / (strongest or 1.0)).ravel().tolist())  # 1: nothing attended to
    axes.hlines(range(len(rows) + 1), 0, len(columns), color=PAPER, linewidth=1, clip_on=False)
    axes.vlines(range(len(columns) + 1), 0, len(rows), color=PAPER, linewidth=1, clip_on=False)
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.tick_params(length=0, labeltop=True, labelbottom=False, pad=3, labelcolor=INK)
    axes.set_yticks(np.arange(len(rows)) + 0.5, labels=rows, parse_math=False)
    axes.set_xticks(
        np.arange(len(columns)) + 0.6, labels=columns, parse_math=False,
        rotation=50, rotation_mode="anchor", ha="left", va="baseline",
    )  # fmt: skip
    return _chart(f"{title} (the strongest square is {strongest:.0%})", figure, {})


def _letters(word: str) -> float:
    """The width of a word, in letters of usual width."""
    from rich.cells import cell_len  # Chinese, Japanese and Korean letters are two wide

    return cell_len(word) + 0.5 * sum(c.isupper() or c in "mw" for c in word)


def _axes(x: str) -> tuple[Figure, Axes]:
    """Axes with rules to read a height by, which end at round numbers, and a title below."""
    import matplotlib

    matplotlib.rcParams["axes.autolimit_mode"] = "round_numbers"  # until `defaults` ends
    figure, axes = _placed(WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM)
    axes.grid(axis="y", color=RULE, linewidth=1, clip_on=False)
    axes.set_axisbelow(True)
    axes.margins(y=0)
    axes.locator_params(axis="y", nbins=6)
    axes.tick_params(axis="x", pad=8)
    axes.set_xlabel(x, color=QUIET, fontsize=11, labelpad=3, parse_math=False)
    return figure, axes


def _placed(
    width: float, height: float, left: float, top: float, right: float, bottom: float
) -> tuple[Figure, Axes]:
    """A picture in units of the page's pixels with axes inside these margins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    inside = 1 - (left + right) / width, 1 - (top + bottom) / height
    axes = figure.add_axes((left / width, bottom / height, *inside))
    axes.tick_params(length=0, labelsize=11, labelcolor=QUIET, pad=5)
    axes.spines[:].set_visible(False)
    return figure, axes


def _chart(title: str, figure: Figure, names: Iterable[str]) -> Chart:
    """The figure as an SVG of the page's own fonts and colours, without ids that could clash."""
    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    svg = each_isolated(file.getvalue().decode())
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<defs>\s*<style.*?</defs>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(<g) id="[^"]*"', r"\1", body)
    body = re.sub(r"font-family: [^;]*;", "font-family: var(--sans);", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(f": {colour}", f": var(--{variable})")
    width, height = (72 * side for side in figure.get_size_inches())
    opening = Markup(
        '<svg width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.6g} {1:.6g}" role="img" '
        'aria-label="{2}">'
    ).format(width, height, title)
    legend = list(zip(names, cycle(COLOURS), strict=False))
    return Chart(
        title, legend if len(legend) > 1 else [], opening + Markup(re.sub(r"\s+", " ", body))
    )
