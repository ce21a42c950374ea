"""Figures of runs, and their shared parts: fonts with the glyphs, one colour scale, equal bytes.

Figures are built from matplotlib's objects, without pyplot, and saved under matplotlib's own
defaults, so that neither a display nor a personal matplotlibrc changes a picture.

Right-to-left words are ordered and shaped by matplotlib (3.11 or newer, through libraqm), each for
itself; the axis still runs from left to right, in the order of the tokens. An SVG holds its labels
as text, so there the viewer's fonts, ordering and shaping count.
"""

from __future__ import annotations

import io
import logging
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from translate.errors import UserError
from translate.files import write
from translate.run_folder import Curve, read_curves
from translate.wording import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

DOTS_PER_INCH = 200
MOST_DOTS = 6000  # a side: beyond, a grid of long sentences would need gigabytes to draw
NAME = 9  # points: the size of the names at the line ends
INK = "#222222"
BLUE = "#1f5fa8"
GREY = "#9aa3ad"  # of axes and frames
PALE = "#e6e9ee"  # of the lines of a grid
# Okabe & Ito 2008: told apart by the colour-blind too; the marks tell them apart in grey print
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222")
DASHES = ("-", "--", ":", "-.")  # of the losses of training, which are all grey
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
LONGEST_LABEL = 24  # characters
Point = tuple[float, float]
WIDTH, HEIGHT = 6.0, 3.6  # inches, of the axes of `bleu_by_length`

FIRST_STRONG, POP = "\u2068", "\u2069"  # begin and end an isolate

# Metadata that would change from one run to the next, by file type.
UNDATED: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

# Families of wide coverage and neutral look, in this order; the first comes with matplotlib.
FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "WenQuanYi Micro Hei",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Malgun Gothic", "Arial Unicode MS",
)  # fmt: skip

# Han characters are drawn otherwise in Japanese and Korean; beside these letters, they are theirs.
NATIONAL = (("[\u3041-\u30ff]", "Noto Sans CJK JP"), ("[\uac00-\ud7a3]", "Noto Sans CJK KR"))

# Fonts that claim characters they do not show: a box for each, and TeX's with their own encodings.
NO_TEXT_FONTS = ("Last Resort", "cm")

# Ottosson 2020, "A perceptual color space for image processing".
OKLAB_TO_CONES = np.array([
    [1.0, 0.3963377774, 0.2158037573],
    [1.0, -0.1055613458, -0.0638541728],
    [1.0, -0.0894841775, -1.2914855480],
])  # fmt: skip
CONES_TO_RGB = np.array([
    [4.0767416621, -3.3077115913, 0.2309699292],
    [-1.2684380046, 2.6097574011, -0.3413193965],
    [-0.0041960863, -0.7034186147, 1.7076147010],
])  # fmt: skip


@contextmanager
def defaults() -> Iterator[None]:
    """Draw and save under matplotlib's own settings, whatever was set before; also a decorator.

    matplotlib keeps settings in one place for a process: do not draw in two threads at once.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        # text stays text in an SVG: it can be searched, and a viewer may have more fonts
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "translate"})
        # `families` has said it better
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the suffix; under `defaults`, equal bytes each time.

    Raises:
        UserError: another suffix, or a path that cannot be written.
    """
    kind = file_type(path)
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=kind[1:],
        dpi=min(DOTS_PER_INCH, MOST_DOTS / max(figure.get_size_inches())),
        bbox_inches="tight",
        pad_inches=0.08,
        metadata=UNDATED[kind],
    )
    content = buffer.getvalue()
    write(path, each_isolated(content.decode()).encode() if kind == ".svg" else content)


def each_isolated(svg: str) -> str:
    """Make each right-to-left label of an SVG an isolate, with the direction of its first letter.

    Viewers take a text to run from left to right, and would put its full stop at the right.
    """

    def isolated(match: re.Match[str]) -> str:
        leftwards = any(unicodedata.bidirectional(c) in ("R", "AL") for c in match[1])
        return f">{FIRST_STRONG}{match[1]}{POP}</text>" if leftwards else match[0]

    return re.sub(r">([^<]+)</text>", isolated, svg)


def file_type(path: Path) -> str:
    """The suffix in lower case, if it is one that can be written.

    Raises:
        UserError: it is not.
    """
    kind = path.suffix.lower()
    if kind not in UNDATED:
        raise UserError(
            f"cannot tell the picture's format from {path.name!r}: "
            f"end the name in {', '.join(UNDATED)}"
        )
    return kind


def axis_style(axes: Axes) -> None:
    """Grey axes at the left and below, and lines across to read a height by."""
    axes.tick_params(labelsize=8, length=3, color=GREY, labelcolor=INK)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)


def text_style(texts: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments for texts from data: fonts that cover them, `$` and `_` taken literally."""
    fonts = [*families("".join(texts)), "sans-serif"]  # the last for SVG viewers without the others
    return {"family": fonts, "parse_math": False, "color": INK}


def label(text: str) -> str:
    """A token as an axis shows it: controls escaped, cut where it would crowd out the picture."""
    shown = escaped(text)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def families(text: str) -> tuple[str, ...]:
    """The installed font families that cover a text together, the preferred ones first.

    Characters that no font has are named in a warning, and matplotlib draws a box for each.
    """
    return _families(frozenset(text) - {" "})


@cache
def _families(characters: frozenset[str]) -> tuple[str, ...]:
    import matplotlib

    chosen = [FAMILIES[0]]
    missing = {c for c in characters if unicodedata.category(c) not in ("Cf", "Mn", "Cc")}
    missing -= _coverage(FAMILIES[0])
    for family in _candidates(characters):
        if not missing:
            break
        if covered := missing & _coverage(family):
            chosen.append(family)
            missing -= covered
    if missing:
        log.warning(
            "no installed font has %d of the characters in a picture: %s; install the Noto font of "
            "that script, and remove matplotlib's list of fonts in %s",
            len(missing),
            ", ".join(f"{c} (U+{ord(c):04X})" for c in sorted(missing)[:20]),
            matplotlib.get_cachedir(),
        )
    return tuple(chosen)


def _candidates(characters: frozenset[str]) -> Sequence[str]:
    """Installed families of upright regular text, the preferred ones first, the others by name."""
    from matplotlib.font_manager import fontManager

    installed = {
        entry.name
        for entry in fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in (400, "normal", "regular")
        and not entry.name.startswith(NO_TEXT_FONTS)
    }
    text = "".join(characters)
    national = [family for letters, family in NATIONAL if re.search(letters, text)]
    preferred = [family for family in [*national, *FAMILIES] if family in installed]
    return preferred + sorted(installed.difference(preferred))


@cache
def _coverage(family: str) -> frozenset[str]:
    """The characters that a family's regular face has glyphs for."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    # a list: a lone string would be read as a fontconfig pattern, where `-` has a meaning
    font = get_font(findfont(FontProperties(family=[family])))
    return frozenset(map(chr, font.get_charmap()))


@cache
def single_hue() -> ListedColormap:
    """White to dark blue, one hue, lightness falling evenly with the value.

    Even steps in OKLab's lightness make equal differences of weight look equally large, in grey
    print too.
    """
    from matplotlib.colors import ListedColormap

    share = np.linspace(0, 1, 256)
    lightness = 1 - 0.68 * share
    # as colourful as sRGB allows along the way, without clipping
    chroma = 0.3 * share * (1.33 - share)
    hue = np.deg2rad(255)
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1)  # (256, 3)
    linear = np.clip((lab @ OKLAB_TO_CONES.T) ** 3 @ CONES_TO_RGB.T, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(gamma, name="single-hue blue")


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
    panels = {title: group for title, group in (("loss", losses), ("BLEU", bleus)) if group}
    if not panels:
        raise UserError(
            f"{metrics} holds no loss and no BLEU to draw: train until the first value is logged"
        )
    figure = Figure(figsize=(4.4 * len(panels), 3.0))
    for place, (title, group) in enumerate(panels.items()):
        axes = figure.add_axes(
            (place / len(panels), 0, 0.8 / len(panels), 1),
            sharex=figure.axes[0] if figure.axes else None,
        )
        _panel(axes, title, group)
    save(figure, path)


def _panel(axes: Axes, title: str, curves: Mapping[str, Curve]) -> None:
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
        best = min(values) if title == "loss" else max(values)
        axes.annotate(
            f"{best:.2f}" if title == "loss" else f"{best:.1f}",
            (steps[values.index(best)], best), (0, 7),
            textcoords="offset points", ha="center", fontsize=8, color=BLUE,
        )  # fmt: skip
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("step", fontsize=9, color=INK)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axis_style(axes)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


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
    # from BLEU 0, so that heights compare
    axes.set_ylim(0, 1.08 * max(bleu for points in lines.values() for _, bleu in points) or 1.0)
    axes.set_xlabel("words in the source sentence", fontsize=9, color=INK)
    axes.set_ylabel("BLEU", fontsize=9, color=INK)
    axis_style(axes)
    if trained_to is not None:
        axes.axvline(trained_to, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
        axes.annotate(
            f"longest in training: {trained_to:g}", (trained_to, 1), (4, -3),
            xycoords=("data", "axes fraction"), textcoords="offset points",
            va="top", fontsize=8, color=INK,
        )  # fmt: skip
    _name_lines(axes, {name: points[-1] for name, points in lines.items()}, colours)
    save(figure, path)


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
            (x, place), (y, height),
            color=colours[name], linewidth=0.8, linestyle=":", clip_on=False,
        )  # fmt: skip
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
