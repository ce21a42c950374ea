"""Held-out sentences are held out on both sides, whatever the graph of translations looks like."""

from __future__ import annotations

import random
import tempfile
import unicodedata
from collections import defaultdict
from hashlib import sha256
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.data import selection as splits
from translate.data.pairs import Item, Pair, PairTable, items, write_pairs
from translate.data.plain_text import fold, sameness
from translate.data.selection import QUICK, components, peek, take_components, take_groups
from translate.errors import UserError

sentences = st.sampled_from([f"{word}{n}" for word in ("a ", "A  ", "b") for n in range(12)])
edges = st.builds(Pair, sentences, sentences, alignment=st.just(()))
graphs = st.lists(edges, min_size=1, max_size=30)


def table(pairs):
    with tempfile.TemporaryDirectory() as folder:  # its file stays open
        return write_pairs(Path(folder) / "pairs", pairs)


def sides(pairs):
    return {sameness(text) for pair in pairs for text in (pair.source, pair.target)}


@given(graphs, st.integers(0, 3), st.integers(1, 3), st.integers(1, 3))
def test_no_sentence_is_in_two_splits_and_no_pair_is_lost(pairs, seed, dev, test):
    try:
        train, taken = take_components(table(pairs), {"dev": dev, "test": test}, seed)
    except UserError:
        return
    parts = [train, taken["dev"], taken["test"]]
    for index, part in enumerate(parts):
        for other in parts[index + 1 :]:
            assert not sides(part) & sides(other)
    assert sorted(chain(*parts)) == sorted(pairs)
    assert train
    assert (len(items(taken["dev"])), len(items(taken["test"]))) == (dev, test)


def slow_components(pairs):
    """Merge sets until nothing changes."""
    groups = [{sameness(pair.source), sameness(pair.target)} for pair in pairs]
    while True:
        for a in groups:
            b = next((b for b in groups if b is not a and a & b), None)
            if b is not None:
                a |= b
                groups.remove(b)
                break
        else:
            return [min(next(g for g in groups if sameness(p.source) in g)) for p in pairs]


@given(graphs)
def test_components_equal_the_slow_twin_in_both_directions(pairs):
    expected = slow_components(pairs)
    for found in (components(pairs), components([Pair(p.target, p.source) for p in pairs])):
        # one number for one component
        assert len(set(zip(found.tolist(), expected, strict=True))) == len(set(expected))
        assert set(found.tolist()) == set(range(len(set(expected))))


def grid(count):
    return [Pair(f"quelle {n}", f"source {n}") for n in range(count)]


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_the_file():
    pairs = grid(50)
    shuffled = random.Random(0).sample(pairs, len(pairs))
    first, again, other = (
        set(take_components(table(p), {"dev": 5}, seed)[1]["dev"])
        for p, seed in ((pairs, 1), (shuffled, 1), (pairs, 2))
    )
    assert first == again != other


def test_a_sentence_is_the_same_however_its_characters_are_composed():
    pairs = [Pair("می\u200cخوانم", "i read"), Pair("می خوانم", "i am reading"), Pair("c", "d")]
    one, other, third = components(pairs)
    assert one == other != third
    pairs = [
        Pair(unicodedata.normalize(form, f"Café {n}"), f"{form} {n}")
        for n in range(20) for form in ("NFC", "NFD")
    ]  # fmt: skip
    train, taken = take_components(table(pairs), {"dev": 8}, 1)
    assert {pair.source[-2:] for pair in train}.isdisjoint(p.source[-2:] for p in taken["dev"])


def test_text_that_is_not_composed_is_drawn_by_its_own_hash():
    pairs = [Pair(f"e\u0301 {n}", f"x {n}") for n in range(20)]
    first = sorted(pairs, key=lambda p: sha256(f"1 {p.source}".encode()).hexdigest())[:4]
    assert set(take_components(table(pairs), {"dev": 4}, 1)[1]["dev"]) == set(first)


def test_more_than_there_is_names_key_and_count_and_the_remedy():
    told = r"hold_out.test = 4 items cannot be held out: .* 10 s.*; lower it, or give your own dev"
    with pytest.raises(UserError, match=told):
        take_components(table(grid(10)), {"dev": 4, "test": 4}, 0)


def test_a_component_of_most_pairs_is_read_by_chunks_and_sized_without_reading(monkeypatch):
    """Short answers link subtitles: one by one, its pairs would take minutes, and all memory."""
    chain_of = [Pair(f"s{i // 2}", f"t{(i + 1) // 2}") for i in range(100)]
    pairs = table([*chain_of, *(Pair(f"a{i}", f"b{i}") for i in range(300))])
    wanted = {"dev": 3, "test": 2}
    _, expected = take_components(pairs, wanted, 1)
    monkeypatch.setattr(splits, "CHUNK", 99)
    read = []
    one = PairTable.__getitem__
    monkeypatch.setattr(PairTable, "__getitem__", lambda self, i: read.append(i) or one(self, i))
    left, taken = take_components(pairs, wanted, 1)
    assert not read
    assert {name: list(found) for name, found in taken.items()} == {
        name: list(found) for name, found in expected.items()
    }
    assert len(left) == 395


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40))
def test_items_of_a_component_are_its_different_sentences(pairs):
    component = np.unique([group for group, _ in pairs], return_inverse=True)[1]
    sentences = np.array([10 * group + sentence for group, sentence in pairs], dtype=np.uint64)
    found = splits._Groups(component).distinct(sentences)
    expected = [len(set(sentences[component == group])) for group in range(component.max() + 1)]
    assert found.tolist() == expected


def test_half_of_the_pairs_may_be_held_out_and_no_more():
    pairs = table([Pair(f"a{n}", f"b{n}") for n in range(4)])
    left, taken = take_components(pairs, {"dev": 1, "test": 1}, 0)
    assert (len(left), len(taken["dev"]), len(taken["test"])) == (2, 1, 1)
    with pytest.raises(UserError, match="half of the pairs must be left"):
        take_components(pairs, {"dev": 2, "test": 1}, 0)
    left, taken = take_components(pairs, {"test": 0}, 0)
    assert (len(left), taken) == (4, {})


def test_groups_are_taken_whole_and_by_name():
    pairs = [Pair(f"s{n}", f"t{n}", group=str(n % 3)) for n in range(9)]
    train, taken = take_groups(table(pairs), {"dev": [0], "test": ["2"]})
    assert {pair.group for pair in train} == {"1"}
    assert [pair.source for pair in taken["dev"]] == ["s0", "s3", "s6"]
    assert {pair.group for pair in taken["test"]} == {"2"}
    with pytest.raises(
        UserError, match=r"data.hold_out.dev: .* no group 7; its groups are 0, 1, 2"
    ):
        take_groups(table(pairs), {"dev": [7]})


def slowly_taken(pairs, count, seed):
    """The sources of whole components, in the order of a hash of their smallest sentence."""

    def lot(group):
        smallest = min(fold(text) for pair in group for text in pair[:2])
        return sha256(f"{seed} {smallest}".encode()).hexdigest()

    members = defaultdict(list)
    for pair, smallest in zip(pairs, slow_components(pairs), strict=True):
        members[smallest].append(pair)
    taken = []
    for group in sorted(members.values(), key=lot):
        if len({*taken, *(found := {p.source for p in group})}) <= count:
            taken += found
    return set(taken)


@given(graphs, st.integers(0, 3), st.integers(1, 4))
def test_the_components_drawn_are_those_of_the_slow_twin(pairs, seed, count):
    try:
        _, taken = take_components(table(pairs), {"dev": count}, seed)
    except UserError:
        return
    assert {pair.source for pair in taken["dev"]} == slowly_taken(pairs, count, seed)


def test_items_collect_references_in_order():
    pairs = [Pair("a", "x", "", ((0, 0),)), Pair("b", "y"), Pair("a", "z"), Pair("a", "x")]
    assert items(pairs) == [Item("a", ("x", "z"), ((0, 0),)), Item("b", ("y",))]


def test_the_first_pairs_are_looked_at_and_all_are_read() -> None:
    pairs = [Pair(str(n), "x") for n in range(QUICK + 3)]
    heads, texts = peek({"train": iter(pairs), "dev": iter(pairs[:2])})
    assert heads == {"train": pairs[:QUICK], "dev": pairs[:2]}
    assert {split: list(text) for split, text in texts.items()} == {
        "train": pairs, "dev": pairs[:2]
    }  # fmt: skip
