"""Figures: heatmaps, learning curves and BLEU by length, byte-equal and with fonts that fit."""

from __future__ import annotations

import logging
import re
import struct
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from translate.errors import UserError
from translate.extras import figures
from translate.extras.attention_pictures import POINTS, Layout, grid, heatmap
from translate.extras.figures import (
    INK,
    bleu_by_length,
    families,
    label,
    learning_curves,
    read_curves,
    single_hue,
    spread,
)

SOURCE = ["¿", "Dónde", "está", "el", "tren", "?", "</s>"]
TARGET = ["Where", "is", "the", "train", "?", "</s>"]


def weights(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(columns, 0.2), size=rows)


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_a_png_can_be_read_and_grows_with_the_sentence(tmp_path: Path) -> None:
    widths = []
    for tokens in (6, 40):
        path = tmp_path / "plots" / f"{tokens}.png"
        heatmap(["wort"] * tokens, ["word"] * tokens, weights(tokens, tokens), path)
        widths.append(png_size(path)[0])
    assert 600 < widths[0] < 1200
    assert widths[1] > 40 * 24  # dots a token at the least


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    heatmap(SOURCE, TARGET, weights(6, 7), first)
    with matplotlib.rc_context(
        {"axes.facecolor": "black", "font.size": 30, "svg.fonttype": "path"}
    ):
        heatmap(SOURCE, TARGET, weights(6, 7), second)
        assert matplotlib.rcParams["font.size"] == 30
    assert first.read_bytes() == second.read_bytes()


def svg_texts(path: Path) -> list[str]:
    """Without the isolates around those that run from right to left."""
    return re.findall(r"<text[^>]*>\u2068?([^<\u2069]*)\u2069?</text>", path.read_text("utf-8"))


def test_an_svg_holds_its_labels_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    heatmap(SOURCE, TARGET, weights(6, 7), path)
    texts = svg_texts(path)
    assert "attention weight" in texts
    escaped = [token.replace("<", "&lt;").replace(">", "&gt;") for token in SOURCE + TARGET]
    assert texts[: len(escaped)] == escaped


def places(path: Path) -> dict[str, tuple[float, float]]:
    """Where an SVG's texts stand: x, y."""
    found = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<', path.read_text())
    return {text: (float(x), float(y)) for x, y, text in found}


def darkest(path: Path) -> tuple[float, float, float, float]:
    """The one cell of an SVG in the colour of the largest weight: left, top, right, bottom."""
    (outline,) = re.findall(
        rf'd="([^"]*)" clip-path="[^"]*" style="fill: {to_hex(single_hue()(1.0))}; stroke',
        path.read_text(),
    )
    corners = np.array(re.findall(r"([\d.]+) ([\d.]+)", outline), dtype=float)
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    return left, top, right, bottom


@pytest.mark.parametrize(("t", "s"), [(0, 0), (0, 2), (1, 1)])
def test_a_weight_is_painted_under_its_source_and_beside_its_target(
    tmp_path: Path, t: int, s: int
) -> None:
    one = np.zeros((2, 3))
    one[t, s] = 1
    path = tmp_path / "a.svg"
    heatmap(["s0", "s1", "s2"], ["t0", "t1"], one, path)
    left, top, right, bottom = darkest(path)
    named = places(path)
    assert left < named[f"s{s}"][0] < right
    assert top < named[f"t{t}"][1] < bottom


def test_source_tokens_run_along_the_top_and_target_tokens_down_the_left(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    heatmap(["s1", "s2", "s3"], ["t1", "t2"], weights(2, 3), path)
    named = places(path)
    assert named["s1"][0] < named["s2"][0] < named["s3"][0]
    assert named["s1"][1] == named["s3"][1] < named["t1"][1] < named["t2"][1]
    assert named["t1"][0] < named["s1"][0]


def test_dollars_underscores_and_backslashes_are_no_mathematics(tmp_path: Path) -> None:
    odd = ["$x_1$", "a_b", r"\frac{1}{2}", "5$", "$"]
    heatmap(odd, ["ok"], weights(1, 5), tmp_path / "a.svg")
    assert svg_texts(tmp_path / "a.svg")[:5] == odd
    assert label("a\nb\x00\u2028\ud800") == r"a\nb\x00\u2028\ud800"
    assert label("x" * 25) == "x" * 23 + "…"


def test_characters_without_a_font_are_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unassigned = "\U000e0fff"  # no font has what Unicode has not assigned
    with caplog.at_level(logging.WARNING):
        heatmap(["a", unassigned], ["b"], weights(1, 2), tmp_path / "a.png")
    assert "U+E0FFF" in caplog.text
    png_size(tmp_path / "a.png")


def test_han_characters_are_drawn_as_the_language_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans CJK SC"]
    entries = [SimpleNamespace(name=name, style="normal", weight=400) for name in fonts]
    monkeypatch.setattr("matplotlib.font_manager.fontManager.ttflist", entries)
    monkeypatch.setattr(
        figures,
        "_coverage",
        lambda family: frozenset() if family == fonts[0] else frozenset("火は한"),
    )
    figures._families.cache_clear()
    assert families("火") == (fonts[0], fonts[3])
    assert families("火は") == (fonts[0], fonts[1])
    assert families("火한") == (fonts[0], fonts[2])
    figures._families.cache_clear()


def test_the_panel_of_a_grid_shows_the_head_that_its_caption_names(tmp_path: Path) -> None:
    one = np.zeros((2, 3, 2, 3))
    one[1, 2, 0, 1] = 1
    path = tmp_path / "a.svg"
    grid(["s0", "s1", "s2"], ["t0", "t1"], one, path)
    left, top, right, _ = darkest(path)
    captions = {text: at for text, at in places(path).items() if text.startswith("layer")}
    below = {text: y - top for text, (x, y) in captions.items() if left < x < right and y > top}
    assert min(below, key=below.__getitem__) == "layer 2 head 3"
    texts = svg_texts(path)
    assert texts.count("s1") == 3  # above each panel of the first row
    assert texts.count("t1") == 2  # left of each row
    assert texts.count("attention weight") == 1


def test_captions_have_room_beside_each_other_however_short_the_source() -> None:
    from matplotlib.textpath import TextPath

    layout = Layout(np.zeros((2, 8, 12, 2)), 2.6)
    first, second = (layout.axes(0, column)[0] * layout.page[0] for column in (0, 1))
    caption = TextPath((0, 0), "layer 2 head 8", size=9).get_extents().width / POINTS
    assert second - first > caption


def test_a_grid_of_long_sentences_stays_within_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, tokens = 1500, 20
    monkeypatch.setattr("translate.extras.figures.MOST_DOTS", most)  # of long sentences: 6,000
    heads = np.broadcast_to(weights(tokens, tokens), (1, 4, tokens, tokens))
    grid(["a"] * tokens, ["b"] * tokens, heads, tmp_path / "a.png")
    assert max(png_size(tmp_path / "a.png")) < most * 1.1


def test_nothing_but_zeros_is_white(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    heatmap(["a"], ["b"], np.zeros((1, 1)), path)
    zero = matplotlib.image.imread(path)[..., :3]
    heatmap(["a"], ["b"], np.ones((1, 1)), path)
    one = matplotlib.image.imread(path)[..., :3]
    cell = np.isclose(one, single_hue()(1.0)[:3], atol=0.01).all(-1)  # and the end of the scale
    assert cell.sum() > 100
    rows, columns = np.nonzero(cell)
    assert (zero[rows.min() + 3, columns.min() + 3] == 1).all()


def test_the_colour_scale_darkens_evenly_in_one_hue() -> None:
    rgb = single_hue()(np.linspace(0, 1, 256))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]  # CIE 1931 Y
    lightness = (
        116 * np.cbrt(luminance) - 16
    )  # CIE 1976 L*, another measure than the one it is made by
    steps = np.diff(lightness)
    assert (steps < 0).all()
    assert steps.std() < 0.15 * abs(steps.mean())
    assert (np.diff(rgb, axis=1)[32:] > 0).all()  # red < green < blue throughout
    np.testing.assert_allclose(rgb[0], 1, atol=1e-3)


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'a.jpg': end the name in .png, .svg, .pdf"):
        heatmap(["a"], ["b"], np.ones((1, 1)), tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"\(1, 2\) for 2 target and 1 source tokens"):
        heatmap(["a"], ["b", "c"], np.ones((1, 2)), tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        heatmap(["a"], [], np.ones((0, 1)), tmp_path / "a.png")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*a.png"):
        heatmap(["a"], ["b"], np.ones((1, 1)), tmp_path / "file" / "a.png")


METRICS = """epoch,step,train/loss,dev/loss,dev/bleu,lr-AdamW
0,10,9.5,,,0.001
0,20,nan,,,0.001
0,20,,8.5,1.25,
1,40,7.0,,,0.002
1,40,,6.5,12.5,
1,60,,6.75,11.5,
"""


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    path.write_text(METRICS, encoding="utf-8")
    return path


def test_empty_and_non_finite_cells_are_left_out(metrics: Path) -> None:
    curves = read_curves(metrics)
    assert curves["train/loss"] == [(11, 9.5), (41, 7.0)], "the file counts steps from 0"
    assert curves["dev/loss"] == [(21, 8.5), (41, 6.5), (61, 6.75)]
    assert curves["dev/bleu"] == [(21, 1.25), (41, 12.5), (61, 11.5)]
    assert set(curves) == {"train/loss", "dev/loss", "dev/bleu", "lr-AdamW"}


def test_both_panels_name_their_best_dev_value(metrics: Path, tmp_path: Path) -> None:
    learning_curves(metrics, tmp_path / "curves.svg")
    found = svg_texts(tmp_path / "curves.svg")
    for text in ("loss", "BLEU", "train/loss", "dev/loss", "dev/bleu", "step", "6.50", "12.5"):
        assert text in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"step,train/loss\n1,2\xff\n", "is damaged .*: restore a copy, or move it away"),
        (None, "No such file or directory; give the metrics.csv of a run"),
        ("a,b\n1,2\n", "has no `step` column"),
        ("step,train/loss\n1,nan\n", "holds no loss and no BLEU"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / "metrics.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        learning_curves(path, tmp_path / "curves.png")


LINES = {
    "rnn_none": [(7.0, 31.0), (17.0, 12.0), (35.0, 3.0)],
    "rnn_luong": [(7.0, 41.0), (17.0, 40.0), (35.0, 38.1)],
    "transformer": [(7.0, 42.0), (17.0, 41.0), (35.0, 38.0)],
    "a_$b$_c": [(7.0, 40.0), (17.0, 39.0), (35.0, 37.9)],
}


def test_names_stand_at_the_line_ends_and_never_touch(tmp_path: Path) -> None:
    bleu_by_length(LINES, tmp_path / "lines.svg", trained_to=40)
    svg = (tmp_path / "lines.svg").read_text("utf-8")
    texts = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    heights = sorted(float(y) for y, text in texts if text in LINES)
    assert len(heights) == len(LINES)
    assert all(high - low > 9 for low, high in pairwise(heights))
    for style, text in re.findall(r'<text style="([^"]*)"[^>]*>([^<]*)</text>', svg):
        assert text not in LINES or INK in style, "yellow letters could not be read"
    with pytest.raises(UserError, match="no BLEU by length to draw"):
        bleu_by_length({"rnn_none": []}, tmp_path / "lines.png")
    shown = [text for _, text in texts]
    for text in ("words in the source sentence", "BLEU", "longest in training: 40"):
        assert text in shown


heights = st.lists(st.floats(0, 100), min_size=1, max_size=8).map(sorted)


@given(heights, st.floats(0.1, 20))
def test_spread_keeps_the_gap_the_order_and_the_mean(values: list[float], gap: float) -> None:
    moved = spread(values, gap)
    assert all(high - low > gap - 1e-9 for low, high in pairwise(moved))
    assert sum(moved) == pytest.approx(sum(values), abs=1e-6)
