"""Pairs on disk are the pairs that were written, however they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data import pairs
from translate.data.pairs import Pair, PairTable, digests, write_pairs

PAIRS = [
    Pair(f"satz {n}\u2028", f"sentence {n} 🙂", str(n % 3), ((0, n), (n, 1)) if n % 2 else ())
    for n in range(23)
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PairTable:
    """In chunks of four, the last of three."""
    monkeypatch.setattr(pairs, "CHUNK", 4)
    return write_pairs(tmp_path / "pairs", iter(PAIRS))


def test_what_is_written_is_read(table: PairTable) -> None:
    assert len(table) == len(PAIRS)
    assert list(table) == PAIRS == [table[i] for i in range(len(PAIRS))]
    assert table.aligned


@pytest.mark.parametrize("ordered", [True, False])
def test_some_of_the_pairs_are_a_table_too(table: PairTable, ordered: bool) -> None:
    places = np.random.default_rng(1).permutation(23)[:9]
    if ordered:
        places.sort()
    some = table.at(places)
    assert list(some) == [PAIRS[i] for i in places] == [some[i] for i in range(9)]
    assert list(some.at(np.array([5, 2]))) == [PAIRS[places[5]], PAIRS[places[2]]]
    assert list(table.at(places[:0])) == []


def test_no_pairs_are_an_empty_table(tmp_path: Path) -> None:
    empty = write_pairs(tmp_path / "pairs", [])
    assert (len(empty), list(empty), empty.aligned) == (0, [], False)


@given(st.lists(st.text(st.characters()), max_size=8))
def test_texts_are_told_apart_by_their_numbers(texts: list[str]) -> None:
    numbers = digests(texts).tolist()
    assert len(set(numbers)) == len(set(texts))
    assert numbers == digests(iter(texts)).tolist()
