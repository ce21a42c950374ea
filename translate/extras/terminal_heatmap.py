"""An attention heatmap out of characters, for a terminal, a log or a pipe.

Shade alone carries the weights, so that it reads without colour; colour only marks
each row's largest weight. Where the source words do not fit above their columns, numbers stand
there and a legend spells them out; a matrix wider than the terminal is cut into blocks of columns.
Words of right-to-left scripts are left to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from translate.extras.figures import label

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

STEPS = (0.05, 0.2, 0.4, 0.7)  # a weight from STEPS[k] up is drawn with shade k + 1
BLOCKS = " ░▒▓█"
ASCII_BLOCKS = " .:+#"
CELL = 2  # characters of shade a weight
GAP = 1  # characters between columns


@dataclass(frozen=True, eq=False)
class TerminalHeatmap:
    """A rich renderable: row t shows what target token t looks at."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights of shape {self.weights.shape} for {len(self.target)} target and "
                f"{len(self.source)} source tokens"
            )

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Lay the matrix out for the width at hand."""
        from rich.cells import cell_len
        from rich.columns import Columns
        from rich.text import Text

        shades = ASCII_BLOCKS if options.ascii_only else BLOCKS
        source = [label(token) for token in self.source]
        margin = max((cell_len(label(token)) for token in self.target), default=0)
        room = options.max_width - margin
        if sum(max(cell_len(token), CELL) + GAP for token in source) <= room:
            yield self._block(source, range(len(source)), shades)
        else:
            numbers = [str(column + 1) for column in range(len(source))]
            legend = (f"{n} {token}" for n, token in zip(numbers, source, strict=True))
            yield Columns(map(Text, legend), padding=(0, 2))
            most = max(1, room // (max(CELL, len(numbers[-1])) + GAP))
            for start in range(0, len(source), most):
                yield Text()
                yield self._block(numbers, range(len(source))[start : start + most], shades)
        over = ">=" if options.ascii_only else "≥"
        keys = zip(shades[1:], STEPS, strict=True)
        key = "  ".join(f"{shade * CELL} {over} {step:g}" for shade, step in keys)
        yield Text(f"weight:  {key}", style="dim")

    def _block(self, headings: Sequence[str], columns: range, shades: str) -> Table:
        """Return a table of columns that fit side by side, each under its heading."""
        from rich.table import Table
        from rich.text import Text  # tokens as they are: a plain string would be read as markup

        table = Table(box=None, pad_edge=False, padding=(0, 0, 0, GAP), collapse_padding=True)
        table.add_column("", justify="right", no_wrap=True)
        for column in columns:
            table.add_column(Text(headings[column]), justify="center", no_wrap=True, min_width=CELL)
        for token, row in zip(self.target, self.weights, strict=True):
            shade = np.searchsorted(STEPS, row, side="right")
            cells = (
                Text(shades[shade[i]] * CELL, style="bold green" if row[i] == row.max() else "")
                for i in columns
            )
            table.add_row(Text(label(token)), *cells)
        return table
