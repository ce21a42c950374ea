"""Charts as SVG: well-formed, true to the values, and safe with any text."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.plots import charts
from translate.plots.page import (
    STYLE,
    cells,
    facts,
    isolated,
    marked,
    page,
    paragraph,
    section,
    table,
    text,
)

ODD = "a<b & \"c\" 'd' ¿é?"
finite = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def bars(markup: str) -> list[tuple[float, float]]:
    """Top and height of each bar."""
    rects = parsed(markup).iter("rect")
    return [(float(rect.get("y", "")), float(rect.get("height", ""))) for rect in rects]


def test_bars_are_as_high_as_their_values() -> None:
    drawn = charts.bar_chart(ODD, ["a", "b", ODD], {ODD: [10, 30, 0]}, x="x")
    (_, low), (_, high), (_, none) = bars(drawn)
    assert high == pytest.approx(3 * low, abs=0.3)
    assert none == 0


def test_a_perfect_score_is_the_end_of_its_axis() -> None:
    """As sacreBLEU computes it."""
    ends = [
        bars(charts.bar_chart("BLEU", ["0-5"], {"a": [top]}, x="x"))
        for top in (100.0, 100.00000000000004)
    ]
    assert ends[0] == ends[1]


def test_what_has_no_value_has_no_bar() -> None:
    drawn = charts.bar_chart("t", ["a", "b"], {"n": [None, 5], "m": [None, None]}, x="x")
    assert [height > 0 for _, height in bars(drawn)] == [False, True, False, False]
    assert "n, a: –<" in drawn
    assert [height for _, height in bars(charts.bar_chart("t", ["a"], {"n": [None]}, x="x"))] == [0]


def test_negative_bars_hang_from_zero() -> None:
    (up_top, up), (down_top, _) = bars(charts.bar_chart("t", ["a", "b"], {"n": [5, -5]}, x="x"))
    assert down_top == pytest.approx(up_top + up)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_lines_stay_inside_their_frame(points) -> None:
    drawn = parsed(charts.line_chart("t", {"a": sorted(points), "b": [points[0]]}, x="step"))
    for circle in drawn.iter("circle"):
        x, y = float(circle.get("cx", "")), float(circle.get("cy", ""))
        assert charts.LEFT - 0.1 <= x <= charts.WIDTH - charts.RIGHT + 0.1
        assert charts.TOP - 0.1 <= y <= charts.HEIGHT - charts.BOTTOM + 0.1


def test_counts_have_whole_ticks() -> None:
    drawn = parsed(charts.histogram("t", [0, 5], edges=range(0, 101, 5), x="chrF"))
    ticks = [node.text for node in drawn.iter("text") if node.get("text-anchor") == "end"]
    assert ticks == ["0", "1"]


def test_a_histogram_counts_every_value_once() -> None:
    drawn = charts.histogram("t", [0, 5, 5, 99, 100], edges=range(0, 101, 50), x="chrF")
    assert "sentences, 0: 3<" in drawn
    assert "sentences, 50: 2<" in drawn


def test_a_heatmap_names_every_weight() -> None:
    weights = np.array([[0.25, 0.75], [0.0, 0.5]])
    drawn = charts.heatmap("t", ["der", ODD], ["the", "x\n"], weights)
    titles = [title.text for title in parsed(drawn).iter("title")]
    assert titles[0] == "the ← der: 25.0%"
    cells = [float(rect.get("fill-opacity", "")) for rect in parsed(drawn).iter("rect")]
    assert cells == pytest.approx([1 / 3, 1, 0, 2 / 3], abs=1e-3)


def test_wide_letters_have_room_beside_a_heatmap() -> None:
    def room(word: str) -> tuple[float, float]:
        drawn = parsed(charts.heatmap("t", ["der", word], [word], np.ones((1, 2))))
        (cell, *_), (svg,) = drawn.iter("rect"), drawn.iter("svg")
        beyond = float(svg.get("width", "")) - float(cell.get("x", ""))
        assert float(cell.get("y", "")) > float(cell.get("x", "")) / 2
        return float(cell.get("x", "")), beyond

    assert room("国際連合") == room("anything")
    assert room("国際連合安全保障理事会")[0] > 11 * 11


def test_a_heatmap_tells_how_strong_its_strongest_square_is() -> None:
    """Which is the darkest on white paper, and the brightest on a dark page."""
    weights = np.array([[0.02, 0.06]])
    assert "(the strongest square is 6%)" in charts.heatmap("t", ["a", "b"], ["c"], weights)
    assert "(the strongest square is 0%)" in charts.heatmap("t", ["a", "b"], ["c"], 0 * weights)


@pytest.mark.parametrize("source", [["a", "Donaudampfschiffahrt."], ["Donaudampfschiffahrt", "."]])
def test_a_long_word_stays_inside_a_heatmap(source) -> None:
    """A label leans by 50 degrees; its letters are some 7 wide."""
    drawn = parsed(charts.heatmap("t", source, ["x"], np.ones((1, 2))))
    (svg,) = drawn.iter("svg")
    for node in drawn.iter("text"):
        if place := re.match(r"translate\(([\d.]+) ", node.get("transform", "")):
            reach = 7 * len(node.text or "") * math.cos(math.radians(50))
            assert float(place[1]) + reach <= float(svg.get("width", ""))


def test_steps_are_whole() -> None:
    drawn = parsed(charts.line_chart("t", {"a": [(1, 1), (2, 3), (3, 2)]}, x="step"))
    ticks = [node.text for node in drawn.iter("text") if node.get("text-anchor") == "middle"]
    assert ticks == ["1", "2", "3", "step"]


def test_a_step_at_the_end_of_an_axis_is_told_whole() -> None:
    drawn = parsed(charts.line_chart("t", {"a": [(0, 1), (1_000_000, 2)]}, x="step"))
    last = next(node for node in drawn.iter("text") if node.text == "1,000,000")
    assert float(last.get("x", "")) + 7 * len("1,000,000") / 2 <= charts.WIDTH


def test_right_to_left_text_runs_in_its_own_direction() -> None:
    full_stop = "مرحبا."
    assert f'<td dir="auto">{full_stop}</td>' in cells(["a"], [[text(full_stop)]], of_text=True)
    assert isolated(full_stop) == f"<bdi>{full_stop}</bdi>"
    drawn = charts.heatmap("t", [full_stop, "one"], ["uno"], np.ones((1, 2)))
    assert f">\u2068{full_stop}\u2069</text>" in drawn
    assert ">one</text>" in drawn
    assert f"uno ← \u2068{full_stop}\u2069: 100.0%" in drawn


def test_eight_runs_have_a_colour_each() -> None:
    legend = charts.bar_chart("t", ["a"], {f"run {i}": [i] for i in range(8)}, x="x")
    assert len(set(re.findall(r'<b class="(\w+)">', legend))) == 8
    for colour in charts.COLOURS:
        assert STYLE.count(f"--{colour}: #") == 2, "light and dark"
        assert f".{colour} {{ --colour: var(--{colour}); }}" in STYLE


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG 2.2 defines it."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_whatever_is_written_can_be_read(scheme: int) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 or more; names stand in the colour of their bars."""
    paper, *inks = (
        luminance(re.findall(rf"--{name}: (#\w+)", STYLE)[scheme])
        for name in ("paper", "ink", "quiet", *charts.COLOURS)
    )
    for ink in inks:
        low, high = sorted((paper, ink))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_what_names_a_row_is_its_header() -> None:
    """A screen reader then says it with each figure; an empty header would say nothing."""
    drawn = table(["run", "BLEU"], [["a", "1"], ["", "2"]])
    assert '<tr><th scope="row">a</th><td>1</td></tr>' in drawn
    assert "<tr><td></td><td>2</td></tr>" in drawn
    assert '<tr><td></td><th scope="col">a</th></tr>' in table(["", "a"], [])


def test_a_page_escapes_what_it_is_given_and_loads_nothing() -> None:
    document = page(
        ODD,
        section(ODD, paragraph(ODD, "lead"), table([ODD], [[ODD]])),
        cells([ODD], [[marked([(ODD, True), (" ", False), (ODD, False)])]], of_text=True),
        facts([(ODD, text(ODD))]),
    )
    assert ODD not in document
    assert "default-src 'none'" in document
    for loading in ("<script", "<link", "<img", "src=", "@import", "url("):
        assert loading not in document
