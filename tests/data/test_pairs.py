"""Pairs on disk are the pairs that were written, and keep their domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conf_nodes import corpus_of, node
from hypothesis import given
from hypothesis import strategies as st

from translate.data import pairs
from translate.data.pairs import Item, Pair, PairTable, digests, items, write_pairs

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


LETTERS = "abcdefghijklmnopqrstuvwxyz"
ROWS = [(f"{a} {b}", f"{a}-{b}", "talk" if a < "c" else "news") for a in "abcd" for b in LETTERS]


def tsv(path: Path, **changes: Any) -> dict[str, Any]:
    path.write_text("".join("\t".join(row) + "\n" for row in ROWS), encoding="utf-8")
    return node(
        "data", "tsv", source="de", target="en", train=str(path),
        columns={"de": 1, "en": 2}, hold_out={"dev": 8, "test": ["news"]}, **changes,
    )  # fmt: skip


def test_an_item_is_of_its_first_pairs_domain() -> None:
    pairs = [Pair("a", "b", "one"), Pair("a", "c", "two"), Pair("d", "b", "two")]
    assert items(pairs) == [Item("a", ("b", "c"), group="one"), Item("d", ("b",), group="two")]


def test_held_out_items_keep_their_domain(tmp_path: Path) -> None:
    tokenizer = node("tokenizer", "char")
    data = tsv(tmp_path / "pairs.tsv", domain=3)
    corpus = corpus_of(data, tokenizer, cache=tmp_path / "cache")
    assert corpus.test is not None
    assert set(corpus.test["group"].to_pylist()) == {"news"}  # asked for by name
    assert set(corpus.dev["group"].to_pylist()) == {"talk"}
    plain = data | {"domain": None, "hold_out": {"dev": 8, "test": 8}}
    without = corpus_of(plain, tokenizer, cache=tmp_path / "cache")
    assert "group" not in without.dev.column_names
    with_domains = corpus_of(plain | {"domain": 3}, tokenizer, cache=tmp_path / "cache")
    assert list(with_domains.dev["source"].to_pylist()) == list(
        without.dev["source"].to_pylist()
    ), "another test set"
    assert set(with_domains.dev["group"].to_pylist()) == {"talk", "news"}
