"""Attention heatmaps for paper and screen: source words above, target words on the left.

Shapes: T target tokens, S source tokens, L layers, H heads. Lengths are inches unless noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from translate.extras.figures import (
    GREY,
    INK,
    PALE,
    defaults,
    file_type,
    label,
    save,
    single_hue,
    text_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

POINTS = 72  # an inch
LONGEST_CAPTION = 0.95
MOST_VECTOR_CELLS = 10_000  # in a panel: beyond, a vector graphic is slow to open


def heatmap(
    source: Sequence[str],
    target: Sequence[str],
    weights: Float[np.ndarray, "T S"],
    path: Path,
    caption: str = "",
) -> None:
    """Draw who looks at whom to a .png, .svg or .pdf file: row t holds what target token t gives.

    The colour runs from 0 to the largest weight, where the colour bar ends; a caption stands below.

    Raises:
        ValueError: weights without a row for each target and a column for each source token.
        UserError: a path that cannot be written, or another suffix.
    """
    _draw(source, target, weights[np.newaxis, np.newaxis], path, room=8.0, captions=[[caption]])


def grid(
    source: Sequence[str],
    target: Sequence[str],
    weights: Float[np.ndarray, "L H T S"],
    path: Path,
) -> None:
    """Draw every head as a small heatmap of its own, a row a layer, all on one colour scale.

    Raises:
        ValueError: as `heatmap`.
        UserError: as `heatmap`.
    """
    layers, heads = weights.shape[:2]
    captions = [
        [f"layer {layer + 1} head {head + 1}" for head in range(heads)] for layer in range(layers)
    ]
    _draw(source, target, weights, path, room=2.6, captions=captions)


class Layout:
    """The places of everything on a page that just holds the panels; saving adds the margins.

    Cells are as large as panels of side `room` allow, but not too small for labels.
    """

    def __init__(self, weights: Float[np.ndarray, "L H T S"], room: float) -> None:
        rows, columns, height, width = weights.shape
        self.cell = min(max(room / max(height, width), 0.15), 0.42)  # the side of one square
        self.font = min(max(self.cell * POINTS * 0.5, 6.0), 11.0)  # of labels, in points
        self.panel = width * self.cell, height * self.cell
        # from panel to panel: across with room for captions, which stand in the gap below
        self.step = max(self.panel[0] + 0.25, LONGEST_CAPTION), self.panel[1] + 0.45
        self.page = (
            columns * self.step[0] - (self.step[0] - self.panel[0]),
            rows * self.step[1] - (self.step[1] - self.panel[1]),
        )

    def axes(self, row: int, column: int) -> tuple[float, float, float, float]:
        """The place of a panel, as `share` gives it."""
        return self.share(column * self.step[0], row * self.step[1], *self.panel)

    def colour_bar(self) -> tuple[float, float, float, float]:
        """The place of the colour bar, right of the panels: left, bottom, width and height."""
        return self.share(self.page[0] + 0.15, 0, 0.11, min(max(self.page[1], 1.2), 3.0))

    def share(
        self, left: float, top: float, width: float, height: float
    ) -> tuple[float, float, float, float]:
        """Inches from the page's upper left corner as matplotlib's shares from the lower left."""
        across, down = self.page
        return (left / across, 1 - (top + height) / down, width / across, height / down)


@defaults()
def _draw(
    source: Sequence[str],
    target: Sequence[str],
    weights: Float[np.ndarray, "L H T S"],
    path: Path,
    *,
    room: float,
    captions: Sequence[Sequence[str]],
) -> None:
    """One panel a head; the uppermost carry the source tokens, the leftmost the target tokens."""
    from matplotlib.figure import Figure

    file_type(path)  # before the work
    if weights.shape[2:] != (len(target), len(source)) or not weights.size:
        raise ValueError(
            f"weights of shape {weights.shape[2:]} for {len(target)} target and {len(source)} "
            "source tokens: a heatmap has a row for each target and a column for each source token"
        )
    layout = Layout(weights, room)
    figure = Figure(figsize=layout.page)
    top = float(np.nanmax(weights)) or 1.0  # 1 where nothing is attended to
    for row, heads in enumerate(weights):
        for column, matrix in enumerate(heads):
            axes = figure.add_axes(layout.axes(row, column))
            mesh = _cells(axes, matrix, top, layout)
            above = list(map(label, source)) if row == 0 else []
            # a slanted word stands on its baseline: moved by so many cells, it points at the middle
            lean = 0.25 * layout.font / POINTS / layout.cell
            axes.set_xticks(
                [index + 0.5 + lean for index in range(len(above))], labels=above,
                fontsize=layout.font, rotation=45, rotation_mode="anchor", ha="left",
                va="baseline", **text_style(above),
            )  # fmt: skip
            beside = list(map(label, target)) if column == 0 else []
            axes.set_yticks(
                [index + 0.5 for index in range(len(beside))], labels=beside,
                fontsize=layout.font, **text_style(beside),
            )  # fmt: skip
            if caption := captions[row][column]:
                axes.set_xlabel(caption, fontsize=9, labelpad=4, **text_style([caption]))
    bar = figure.colorbar(mesh, cax=figure.add_axes(layout.colour_bar()))
    bar.outline.set(color=GREY, linewidth=0.6)
    bar.ax.tick_params(labelsize=8, length=2, color=GREY, labelcolor=INK)
    bar.set_label("attention weight", fontsize=8, color=INK)
    save(figure, path)


def _cells(axes: Axes, weights: Float[np.ndarray, "T S"], top: float, layout: Layout) -> QuadMesh:
    """One square a weight, the first target token uppermost."""
    many = weights.size > MOST_VECTOR_CELLS
    mesh = axes.pcolormesh(
        weights,
        cmap=single_hue(),
        vmin=0,
        vmax=top,
        edgecolors="none" if many else PALE,  # tells empty cells apart
        linewidth=0 if many else 1.2 * layout.cell,  # thinner between smaller cells
        rasterized=many,
    )
    axes.set(xlim=(0, weights.shape[1]), ylim=(weights.shape[0], 0))
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for spine in axes.spines.values():
        spine.set(color=GREY, linewidth=0.6)
    return mesh
