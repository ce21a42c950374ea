"""The heatmap out of characters."""

from __future__ import annotations

import io
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from translate.extras.report_tables import table
from translate.extras.terminal_heatmap import TerminalHeatmap


def shown(renderable: RenderableType, width: int = 80, *, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(width=width, file=file, color_system=None).print(renderable)
    file.seek(0)
    return file.read().splitlines()


def test_a_short_sentence_has_its_words_above_the_columns() -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.0, 0.45, 0.55]])
    lines = shown(TerminalHeatmap(["das", "Haus", "ü"], ["the", "house"], weights))
    assert lines[0].split() == ["das", "Haus", "ü"]
    assert lines[1].split() == ["the", "██", "░░"]
    assert lines[2].split() == ["house", "▓▓", "▓▓"]
    assert lines[3].startswith("weight:  ░░ ≥ 0.05")


def test_a_long_sentence_has_numbers_and_a_legend() -> None:
    source = [f"Wort{number}" for number in range(1, 41)]
    lines = shown(TerminalHeatmap(source, ["x", "y"], np.eye(2, 40)))
    text = "\n".join(lines)
    for number, word in enumerate(source, start=1):
        assert re.search(rf"\b{number} {word}\b", text)
    headings = [line.split() for line in lines if re.fullmatch(r"[\d ]+", line)]
    assert len(headings) == 2
    assert [number for line in headings for number in line] == [
        str(number) for number in range(1, 41)
    ]


@settings(max_examples=30)
@given(
    source=st.lists(
        st.sampled_from(["a", "Haus", "車站", "Überraschung"]), min_size=1, max_size=50
    ),
    target=st.lists(st.sampled_from(["b", "駅", "x" * 60]), min_size=1, max_size=4),
    width=st.integers(40, 120),
)
def test_no_line_is_wider_than_the_terminal_and_no_weight_is_lost(
    source: list[str], target: list[str], width: int
) -> None:
    lines = shown(TerminalHeatmap(source, target, np.ones((len(target), len(source)))), width)
    assert max(map(cell_len, lines)) <= width
    matrix, _, _ = "\n".join(lines).partition("weight:")
    assert matrix.count("██") == len(source) * len(target)


def test_without_unicode_it_is_ascii() -> None:
    lines = shown(TerminalHeatmap(["a"], ["b"], np.ones((1, 1))), encoding="ascii")
    assert lines[1].split() == ["b", "##"]
    assert "".join(lines).isascii()


def test_what_would_move_the_terminal_is_spelled_out_in_a_table() -> None:
    """Names of test sets and domains are a stranger's."""
    rows = [["dom \033[31m[red]", "c\nd"]]
    text = "\n".join(shown(table("news \x1b[2J", ["domain", "a\rb"], rows)))
    assert "\x1b" not in text
    for spelled in (r"news \x1b[2J", r"a\rb", r"dom \x1b[31m[red]", r"c\nd"):
        assert spelled in text
