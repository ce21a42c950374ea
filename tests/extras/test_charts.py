"""Charts of a page: where lines, bars and cells stand, and that text stays text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from importlib import resources

import numpy as np
import pytest
from colours import contrast
from hypothesis import given, settings
from hypothesis import strategies as st

from translate.extras import charts
from translate.extras.charts import Chart
from translate.extras.page_templates import templates
from translate.extras.report_tables import Rows

ODD = "a<b & \"c\" 'd' ¿é?"
STYLE = resources.files("translate.extras").joinpath("templates/page.html").read_text("utf-8")
finite = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.svg)


def texts(chart: Chart) -> list[str]:
    return [node.text or "" for node in parsed(chart).iter("text")]


def boxes(chart: Chart, style: str = r"fill: var\(--(one|two)\)") -> list[tuple[float, float]]:
    """Top and height of each filled shape."""
    shapes = []
    for path in parsed(chart).iter("path"):
        if re.search(style, path.get("style", "")):
            heights = [float(y) for y in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))]
            shapes.append((min(heights), max(heights) - min(heights)))
    return shapes


def test_bars_are_as_high_as_their_values() -> None:
    drawn = charts.bar_chart(ODD, ["a", "b", ODD], {ODD: [10, 30, 0]}, x="x")
    (_, low), (_, high), (_, none) = boxes(drawn)
    assert high == pytest.approx(3 * low, abs=0.3)
    assert none == 0
    assert ODD in texts(drawn)


def test_a_missing_value_has_no_bar() -> None:
    drawn = charts.bar_chart("t", ["a", "b"], {"n": [None, 5], "m": [None, None]}, x="x")
    assert [height > 0 for _, height in boxes(drawn)] == [False, True, False, False]
    empty = charts.bar_chart("t", ["a"], {"n": [None]}, x="x")
    assert [height for _, height in boxes(empty)] == [0]


@settings(max_examples=8)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_lines_stay_inside_their_frame(points: list[tuple[float, float]]) -> None:
    drawn = charts.line_chart("t", {"a": sorted(points), "b": [points[0]]}, x="step")
    places = list(parsed(drawn).iter("use"))
    assert len(places) == len(points) + 1
    for place in places:
        x, y = float(place.get("x", "")), float(place.get("y", ""))
        assert charts.LEFT - 0.1 <= x <= charts.WIDTH - charts.RIGHT + 0.1
        assert charts.TOP - 0.1 <= y <= charts.HEIGHT - charts.BOTTOM + 0.1


def test_a_histogram_counts_every_value_once_and_in_whole_numbers() -> None:
    drawn = charts.histogram("t", [0, 5, 5, 99, 100], edges=range(0, 101, 50), x="chrF")
    (_, three), (_, two) = boxes(drawn)
    assert three == pytest.approx(1.5 * two, abs=0.1)
    assert {"0", "1", "2", "3"} <= set(texts(drawn))
    assert not [text for text in texts(drawn) if "." in text]


def test_steps_are_whole_and_the_last_one_is_seen_whole() -> None:
    drawn = charts.line_chart("t", {"a": [(1, 1), (2, 3), (3, 2)]}, x="step")
    assert [text for text in texts(drawn) if text in "123"] == ["1", "2", "3"]
    long = parsed(charts.line_chart("t", {"a": [(0, 1), (1_000_000, 2)]}, x="step"))
    last = next(node for node in long.iter("text") if node.text == "1,000,000")
    assert float(last.get("x", "")) + 7 * len("1,000,000") / 2 <= charts.WIDTH


def test_a_heatmap_is_as_dark_as_its_weights() -> None:
    """Its title has the largest weight: the darkest on white paper, the brightest on black."""
    weights = np.array([[0.25, 0.75], [0.0, 0.5]])
    drawn = charts.heatmap_chart("t", ["der", ODD], ["the", "x\n"], weights)
    opacities = re.findall(r'fill: var\(--one\)(?:; fill-opacity: ([\d.]+))?"', drawn.svg)
    # a weight of 0 has no square
    assert [float(each or 1) for each in opacities] == pytest.approx([1 / 3, 1, 2 / 3], abs=1e-3)
    assert "(the strongest square is 75%)" in drawn.title
    assert texts(drawn) == ["der", ODD, "the", "x\\n"]
    nothing = charts.heatmap_chart("t", ["a", "b"], ["c"], np.zeros((1, 2)))
    assert "(the strongest square is 0%)" in nothing.title


@pytest.mark.parametrize("source", [["a", "Donaudampfschiffahrt."], ["Donaudampfschiffahrt", "."]])
def test_a_long_word_stays_inside_a_heatmap(source: list[str]) -> None:
    """A label leans by 50 degrees; its letters are some 7 wide."""
    drawn = parsed(charts.heatmap_chart("t", source, ["x"], np.ones((1, 2))))
    for node in drawn.iter("text"):
        if "rotate(-50" in node.get("transform", ""):
            reach = 7 * len(node.text or "") * np.cos(np.radians(50))
            assert float(node.get("x", "")) + reach <= float(drawn.get("width", ""))


def test_right_to_left_text_runs_in_its_own_direction() -> None:
    full_stop = "مرحبا."
    drawn = charts.heatmap_chart("t", [full_stop, "one"], ["uno"], np.ones((1, 2)))
    assert f">\u2068{full_stop}\u2069</text>" in drawn.svg
    assert ">one</text>" in drawn.svg


def test_eight_runs_have_a_colour_each() -> None:
    drawn = charts.bar_chart("t", ["a"], {f"run {i}": [i] for i in range(8)}, x="x")
    assert [colour for _, colour in drawn.legend] == list(charts.COLOURS)
    for name, colour in charts.COLOURS.items():
        assert f"fill: var(--{name})" in drawn.svg
        assert STYLE.count(f"--{name}: #") == 2, "light and dark"
        assert f"--{name}: {colour}" in STYLE
        assert f".{name} {{ --colour: var(--{name}); }}" in STYLE
    assert "#" not in drawn.svg, "a colour of light alone"


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_all_text_can_be_read(scheme: int) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 or more; names stand in the colour of their bars."""
    paper, *inks = (
        re.findall(rf"--{name}: (#\w+)", STYLE)[scheme]
        for name in ("paper", "ink", "quiet", *charts.COLOURS)
    )
    assert all(contrast(ink, paper) >= 4.5 for ink in inks)


def table(rows: Rows) -> str:
    template = templates().from_string('{% import "parts.html" as parts %}{{ parts.table(rows) }}')
    return template.render(rows=rows)


def test_the_name_of_a_row_is_its_header() -> None:
    """A screen reader then says it with each figure; an empty header would say nothing."""
    drawn = table((["run", "BLEU"], [["a", "1"], ["", "2"]]))
    assert '<tr><th scope="row">a</th><td>1</td></tr>' in drawn
    assert "<tr><td></td><td>2</td></tr>" in drawn
    assert '<tr><td></td><th scope="col">a</th></tr>' in table((["", "a"], []))
    assert ODD not in table(([ODD], [[ODD]]))
