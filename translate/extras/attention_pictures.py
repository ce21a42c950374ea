"""Attention heatmaps for paper and screen: source words above, target words on the left.

Shapes: T target tokens, S source tokens, L layers, H heads. Lengths are inches unless noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

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
    from matplotlib.figure import Figure

POINTS = 72  # an inch
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


@dataclass(frozen=True)
class Layout:
    """The places of everything on a page that just holds the panels; saving adds the margins."""

    rows: int  # of panels
    columns: int
    cell: float  # the side of the square of one weight
    panel: tuple[float, float]  # width, height

    caption: ClassVar = 0.95  # the width of the longest

    @property
    def gap(self) -> tuple[float, float]:
        """The space between panels: across for their captions, which stand in the lower one."""
        return max(0.25, self.caption - self.panel[0]), 0.45

    @classmethod
    def fit(cls, weights: Float[np.ndarray, "L H T S"], room: float) -> Layout:
        """Make cells as large as panels of side `room` allow, but not too small for labels."""
        rows, columns, height, width = weights.shape
        cell = min(max(room / max(height, width), 0.15), 0.42)
        return cls(rows, columns, cell, (width * cell, height * cell))

    @property
    def page(self) -> tuple[float, float]:
        """Width and height."""
        return (
            self.columns * (self.panel[0] + self.gap[0]) - self.gap[0],
            self.rows * (self.panel[1] + self.gap[1]) - self.gap[1],
        )

    @property
    def font(self) -> float:
        """The size of labels in points."""
        return min(max(self.cell * POINTS * 0.5, 6.0), 11.0)

    def axes(self, row: int, column: int) -> tuple[float, float, float, float]:
        """The place of a panel, as `share` gives it."""
        left, top = (
            (index * (side + gap))
            for index, side, gap in zip((column, row), self.panel, self.gap, strict=True)
        )
        return self.share(left, top, *self.panel)

    def colour_bar(self) -> tuple[float, float, float, float]:
        """The place of the colour bar, right of the page, as `share` gives it."""
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
    layout = Layout.fit(weights, room)
    figure = Figure(figsize=layout.page)
    top = float(np.nanmax(weights)) or 1.0  # 1 where nothing is attended to
    for row, heads in enumerate(weights):
        for column, matrix in enumerate(heads):
            axes = figure.add_axes(layout.axes(row, column))
            mesh = _cells(axes, matrix, top, layout)
            _name_columns(axes, source if row == 0 else (), layout)
            _name_rows(axes, target if column == 0 else (), layout)
            if caption := captions[row][column]:
                axes.set_xlabel(caption, fontsize=9, labelpad=4, **text_style([caption]))
    _colour_bar(figure, mesh, layout)
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


def _name_columns(axes: Axes, tokens: Sequence[str], layout: Layout) -> None:
    """Source tokens above, slanted so that neighbours never touch."""
    # a slanted word stands on its baseline: moved by this many cells, it points at the middle
    lean = 0.25 * layout.font / POINTS / layout.cell
    axes.set_xticks(
        [index + 0.5 + lean for index in range(len(tokens))],
        labels=[label(token) for token in tokens],
        fontsize=layout.font,
        rotation=45,
        rotation_mode="anchor",
        ha="left",
        va="baseline",
        **text_style(map(label, tokens)),
    )


def _name_rows(axes: Axes, tokens: Sequence[str], layout: Layout) -> None:
    """Target tokens on the left."""
    axes.set_yticks(
        [index + 0.5 for index in range(len(tokens))],
        labels=[label(token) for token in tokens],
        fontsize=layout.font,
        **text_style(map(label, tokens)),
    )


def _colour_bar(figure: Figure, mesh: QuadMesh, layout: Layout) -> None:
    """Draw the key of the colours."""
    bar = figure.colorbar(mesh, cax=figure.add_axes(layout.colour_bar()))
    bar.outline.set(color=GREY, linewidth=0.6)
    bar.ax.tick_params(labelsize=8, length=2, color=GREY, labelcolor=INK)
    bar.set_label("attention weight", fontsize=8, color=INK)
