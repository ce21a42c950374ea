"""BLEU by sentence length: every line is drawn and its name can be read."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import UserError
from translate.plots.figure import INK
from translate.plots.lengths import bleu_by_length, spread

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
    shown = [text for _, text in texts]
    for text in ("words in the source sentence", "BLEU", "longest in training: 40"):
        assert text in shown


def test_the_same_scores_give_the_same_png(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        bleu_by_length(LINES, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_scores_of_zero_can_be_drawn(tmp_path: Path) -> None:
    bleu_by_length({"untrained": [(7.0, 0.0)]}, tmp_path / "zero.png")
    assert (tmp_path / "zero.png").stat().st_size > 5000


@pytest.mark.parametrize("lines", [{}, {"rnn_none": []}])
def test_nothing_to_draw_is_refused(
    tmp_path: Path, lines: dict[str, list[tuple[float, float]]]
) -> None:
    with pytest.raises(UserError, match="no BLEU by length to draw"):
        bleu_by_length(lines, tmp_path / "lines.png")


heights = st.lists(st.floats(0, 100), min_size=1, max_size=8).map(sorted)


@given(heights, st.floats(0.1, 20))
def test_spread_keeps_the_gap_the_order_and_the_mean(values: list[float], gap: float) -> None:
    moved = spread(values, gap)
    assert all(high - low > gap - 1e-9 for low, high in pairwise(moved))
    assert sum(moved) == pytest.approx(sum(values), abs=1e-6)


@given(heights)
def test_spread_leaves_alone_what_stands_apart(values: list[float]) -> None:
    apart = [value + 3 * i for i, value in enumerate(values)]
    assert spread(apart, 2.5) == pytest.approx(apart)
