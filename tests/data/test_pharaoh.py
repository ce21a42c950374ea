"""Links as text: there and back, and refusals that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data.text import Gold, from_line, read_links, to_line
from translate.errors import UserError

positions = st.integers(0, 300)


@given(st.frozensets(st.tuples(positions, positions), max_size=12))
def test_links_survive_being_written(links: frozenset[tuple[int, int]]) -> None:
    assert from_line(to_line(links)) == Gold(links, frozenset())


def test_lines_are_sorted_by_number_and_empty_without_links() -> None:
    assert to_line([(10, 0), (2, 3), [2, 1]]) == "2-1 2-3 10-0"
    assert to_line([]) == ""


def test_sure_and_possible_links_have_their_signs() -> None:
    assert from_line("0-0 1p2 2?1  3-3") == Gold(
        frozenset({(0, 0), (3, 3)}), frozenset({(1, 2), (2, 1)})
    )
    assert from_line("0-0 0p0") == Gold(frozenset({(0, 0)}), frozenset())  # sure is more
    assert from_line("  ") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize("word", ["0:1", "1-", "-1-2", "1-2-3", "a-b", "1.5-2", "1–2", "٣-١"])
def test_what_is_no_link_is_told(word: str) -> None:
    with pytest.raises(UserError, match=r"gold, line 3: .* is not a link: write i-j \(sure\)"):
        from_line(f"0-0 {word}", "gold, line 3")


def test_a_file_holds_a_line_a_pair(tmp_path: Path) -> None:
    path = tmp_path / "gold.gz"
    path.write_bytes(gzip.compress(b"0-1\n\n1-0 0p0\r\n"))
    found = read_links(path, ["a b", "", "a b"], ["x y", "z", "x"])
    assert [to_line(gold.sure) for gold in found] == ["0-1", "", "1-0"]
    assert found[2].possible == {(0, 0)}


def test_a_file_that_does_not_fit_the_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0\n1-1\n")
    with pytest.raises(UserError, match="gold has 2 lines for 1 pair of sentences"):
        read_links(path, ["a b"], ["x y"])
    with pytest.raises(UserError, match=r"line 2: 1-1 .* source word 1, .* sentence has no words:"):
        read_links(path, ["a b", " "], ["x y", "x"])
    with pytest.raises(UserError, match=r"line 2: 1-1 links a target word 1, .* words 0 to 0"):
        read_links(path, ["a b", "a b"], ["x y", "x"])
    with pytest.raises(UserError, match="line 2: 1-1 links a source word 1"):
        read_links(path, ["a b", "a"], ["x y", "x y"])
