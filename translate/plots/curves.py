"""Learning curves from the metrics.csv of a run (`training.metrics.MetricsFile`).

A row holds what was logged at one moment and leaves the other cells empty; the file of a run that
was killed may end in the middle of a row.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from translate.errors import UserError
from translate.plots.figure import BLUE, GREY, INK, axis_style, defaults, file_type, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = list[tuple[int, float]]  # (step, value), steps rising

DASHES = ("-", "--", ":", "-.")  # of the losses of training, which are all grey


@defaults()
def learning_curves(metrics: Path, path: Path) -> None:
    """Draw the losses and, beside them, dev BLEU over the steps to a .png, .svg or .pdf file.

    Raises:
        UserError: no such file, nothing in it to draw, or a path that cannot be written.
    """
    from matplotlib.figure import Figure

    file_type(path)
    curves = read_curves(metrics)
    losses = {name: curve for name, curve in curves.items() if "loss" in name.split("/")[-1]}
    bleus = {name: curve for name, curve in curves.items() if "bleu" in name.split("/")[-1].lower()}
    panels: list[tuple[str, Mapping[str, Curve], Callable[[Iterable[float]], float]]] = [
        (title, group, best)
        for title, group, best in (("loss", losses, min), ("BLEU", bleus, max))
        if group
    ]
    if not panels:
        raise UserError(
            f"{metrics} holds no loss and no BLEU to draw: train until the first value is logged"
        )
    figure = Figure(figsize=(4.4 * len(panels), 3.0))
    for place, (title, group, best) in enumerate(panels):
        axes = figure.add_axes(
            (place / len(panels), 0, 0.8 / len(panels), 1),
            sharex=figure.axes[0] if figure.axes else None,
        )
        _panel(axes, title, group, best)
    save(figure, path)


def read_curves(metrics: Path) -> dict[str, Curve]:
    """Every column that has finite values, as (step, value) pairs in the order of the steps.

    Steps count from 1, as everywhere but in the file: the row of the first says 0. Where a resumed
    run logged a step again, the later value counts.

    Raises:
        UserError: no such file, or one without a `step` column.
    """
    values: dict[str, dict[int, float]] = {}
    try:
        with metrics.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(line for line in file if line.endswith("\n"))  # no cut last row
            if "step" not in (rows.fieldnames or []):
                raise UserError(f"{metrics} has no `step` column: give the metrics.csv of a run")
            for row in rows:
                _collect(row, values)
    except OSError as error:
        raise UserError(
            f"cannot read {metrics}: {error.strerror or error}; give the metrics.csv of a run"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{metrics} is damaged ({error}): restore a copy, or move it away"
        ) from error
    return {name: sorted(curve.items()) for name, curve in values.items()}


def _collect(row: Mapping[str | None, str | None], values: dict[str, dict[int, float]]) -> None:
    step = _number(row["step"])
    if step is None:
        return
    for name, cell in row.items():
        number = _number(cell)
        if name not in (None, "step", "epoch") and number is not None:
            values.setdefault(str(name), {})[int(step) + 1] = number


def _number(cell: object) -> float | None:
    """A finite number, or None for an empty, cut or non-finite cell."""
    try:
        number = float(cell) if isinstance(cell, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _panel(
    axes: Axes, title: str, curves: Mapping[str, Curve], best: Callable[[Iterable[float]], float]
) -> None:
    """One quantity over the steps: training thin and grey, dev strong with its best value named."""
    dashes = cycle(DASHES)
    for name, curve in curves.items():
        steps, values = zip(*curve, strict=True)
        if name.startswith("train"):
            axes.plot(
                steps, values, color=GREY, linewidth=0.9, linestyle=next(dashes), label=name,
                zorder=1,
            )  # fmt: skip
            continue
        axes.plot(steps, values, color=BLUE, linewidth=1.6, marker="o", markersize=3, label=name)
        top = best(values)
        axes.annotate(
            f"{top:.2f}" if title == "loss" else f"{top:.1f}",
            (steps[values.index(top)], top),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=BLUE,
        )
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("step", fontsize=9, color=INK)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axis_style(axes)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
