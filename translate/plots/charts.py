"""Charts as inline SVG in a report: text stays text, colours follow the page's light or dark.

Points and bars carry their values as titles, which browsers show at the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from translate.plots.figure import isolated, label
from translate.plots.page import Html, join, text

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 32, 10, 34  # margins of the axes; half a number stands out
# classes of the page; beyond eight they come again, and bars are told by their order
COLOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
CELL = 22  # of a heatmap
Point = tuple[float, float]


def line_chart(title: str, lines: Mapping[str, Sequence[Point]], *, x: str) -> Html:
    """A line a name over whole numbers `x`; the names stand in the caption, each in its colour."""
    points = [point for line in lines.values() for point in line]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    across = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, widened=False, least=1.0)
    up = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    drawn = []
    for (name, line), colour in zip(lines.items(), _colours(lines), strict=True):
        path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in line)
        drawn.append(Html(f'<polyline class="line {colour}" points="{path}"/>'))
        drawn += [
            Html(
                f'<circle class="area {colour}" cx="{across(a):.1f}" cy="{up(b):.1f}" r="2.5">'
                f"<title>{text(name)}: {b:.4g} at {a:,.6g}</title></circle>"
            )
            for a, b in (line if len(line) <= 60 else [])
        ]
    ticks = [
        _text(across(value), HEIGHT - BOTTOM + 15, f"{value:,.10g}") for value in across.ticks()
    ]
    return _figure(title, [*_grid(up), *ticks, _text(WIDTH / 2, HEIGHT - 4, x), *drawn], lines)


def bar_chart(
    title: str, labels: Sequence[str], bars: Mapping[str, Sequence[float | None]], *, x: str
) -> Html:
    """Bars from zero: for each label one a name, beside each other; of None the title alone."""
    values = [value for heights in bars.values() for value in heights if value is not None]
    least = 1.0 if all(isinstance(value, int) for value in values) else 0.0  # counts are whole
    up = _Axis(min([0, *values]), max(values, default=0.0), HEIGHT - BOTTOM, TOP, least=least)
    slot = (WIDTH - LEFT - RIGHT) / len(labels)
    width = slot * (0.94 if len(labels) > 12 else 0.76) / len(bars)
    drawn = []
    for number, ((name, heights), colour) in enumerate(
        zip(bars.items(), _colours(bars), strict=True)
    ):
        for place, (key, value) in enumerate(zip(labels, heights, strict=True)):
            left = LEFT + slot * place + (slot - width * len(bars)) / 2 + width * number
            top, bottom = sorted((up(value or 0.0), up(0.0)))
            told = "–" if value is None else f"{value:.4g}"
            drawn.append(
                Html(
                    f'<rect class="area {colour}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
                    f'height="{bottom - top:.1f}"><title>{text(name)}, {text(key)}: {told}'
                    "</title></rect>"
                )
            )
    every = math.ceil(len(labels) / 10)  # labels that would touch are left out
    names = [
        _text(LEFT + slot * (place + 0.5), HEIGHT - BOTTOM + 15, key)
        for place, key in enumerate(labels)
        if place % every == 0
    ]
    return _figure(title, [*_grid(up), *names, _text(WIDTH / 2, HEIGHT - 4, x), *drawn], bars)


def histogram(title: str, values: Sequence[float], *, edges: Sequence[float], x: str) -> Html:
    """How many values lie between each edge and the next (the last one included)."""
    counts, _ = np.histogram(values, bins=list(edges))
    labels = [f"{edge:g}" for edge in edges[:-1]]
    return bar_chart(title, labels, {"sentences": counts.tolist()}, x=x)


def heatmap(
    title: str, source: Sequence[str], target: Sequence[str], weights: Float[np.ndarray, "T S"]
) -> Html:
    """Row by row the target's tokens, column by column the source's: the stronger, the more.

    The strongest is the largest weight, which the title tells: on a dark page the brightest.
    """
    rows, columns = list(map(label, target)), list(map(label, source))
    left, top = 8 + 7.0 * max(map(_letters, rows)), 14 + 5.4 * max(map(_letters, columns))
    # labels lean to the right: the last one over the edge, and a long one from further left
    right = max(5 * _letters(word) - CELL * k for k, word in enumerate(reversed(columns)))
    rows, columns = list(map(isolated, rows)), list(map(isolated, columns))
    width, height = left + CELL * len(columns) + right, top + CELL * len(rows) + 4
    strongest = float(weights.max())
    scale = strongest or 1.0  # where nothing is attended to
    drawn = [
        Html(
            f'<rect class="cell" x="{left + CELL * s:.0f}" y="{top + CELL * t:.0f}" '
            f'width="{CELL - 1}" height="{CELL - 1}" '
            f'fill-opacity="{weights[t, s] / scale:.3f}">'
            f"<title>{text(rows[t])} ← {text(columns[s])}: {weights[t, s]:.1%}</title></rect>"
        )
        for t in range(len(rows))
        for s in range(len(columns))
    ]
    beside = [
        Html(
            f'<text x="{left - 5:.0f}" y="{top + CELL * (t + 0.68):.0f}" '
            f'text-anchor="end">{text(word)}</text>'
        )
        for t, word in enumerate(rows)
    ]
    above = [
        Html(
            f'<text transform="translate({left + CELL * (s + 0.6):.0f} {top - 5:.0f}) rotate(-50)">'
            f"{text(word)}</text>"
        )
        for s, word in enumerate(columns)
    ]
    title = f"{title} (the strongest square is {strongest:.0%})"
    return _figure(title, [*drawn, *beside, *above], {}, width=width, height=height)


def _letters(word: str) -> float:
    """How many letters of usual width are as wide as a word."""
    from rich.cells import cell_len  # Chinese, Japanese and Korean letters are two wide

    return cell_len(word) + 0.5 * sum(c.isupper() or c in "mw" for c in word)


class _Axis:
    """Values to places; `widened` to round ticks at both ends, or just as far as the values go.

    Ticks are `least` apart or more.
    """

    def __init__(
        self,
        low: float,
        high: float,
        start: float,
        end: float,
        *,
        widened: bool = True,
        least: float = 0.0,
    ) -> None:
        self.step = max(least, _round_step((high - low or abs(high) or 1.0) / 5))
        self.low, self.high = low, high
        if widened or low == high:
            self.low = math.floor(low / self.step) * self.step
            steps = math.ceil(high / self.step - 1e-9)  # a perfect BLEU is 100.00000000000004
            self.high = max(steps * self.step, self.low + self.step)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step + 1e-9)
        return [self.step * k for k in range(first, last + 1)]


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10 … that is not below."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def _grid(up: _Axis) -> list[Html]:
    """A rule and a number for each tick of the upright axis."""
    return [
        Html(
            f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" '
            f'y2="{up(value):.1f}"/><text class="quiet" x="{LEFT - 6}" y="{up(value) + 4:.1f}" '
            f'text-anchor="end">{value:.6g}</text>'
        )
        for value in up.ticks()
    ]


def _text(x: float, y: float, content: str) -> Html:
    return Html(
        f'<text class="quiet" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text(content)}</text>'
    )


def _colours(names: Iterable[str]) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number, _ in enumerate(names)]


def _figure(
    title: str, drawn: Iterable[Html], names: Iterable[str],
    *, width: float = WIDTH, height: float = HEIGHT,
) -> Html:  # fmt: skip
    """The picture under its title; where there are several names, each in its colour."""
    keys = list(names)
    legend = join(
        (
            Html(f'<b class="{colour}">{text(name)}</b>')
            for name, colour in zip(keys, _colours(keys), strict=True)
            if len(keys) > 1
        ),
        " · ",
    )
    return Html(
        f'<figure><figcaption>{text(title)} {legend}</figcaption><svg width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{text(title)}">{join(drawn, "")}</svg></figure>'
    )
