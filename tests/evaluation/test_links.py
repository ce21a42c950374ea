"""From weights to links, each way, in both directions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from translate.evaluation.alignment import links
from translate.evaluation.links import above, argmax, intersection, linkers, turned, union

sizes = st.tuples(st.integers(1, 6), st.integers(1, 6))


@st.composite
def both(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    targets, sources = draw(sizes)
    weights = st.floats(0, 1, width=32)
    return (
        draw(arrays(np.float32, (targets, sources), elements=weights)),
        draw(arrays(np.float32, (sources, targets), elements=weights)),
    )


FORWARD = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])  # two target words, three source words
BACKWARD = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])


def test_each_way_by_hand() -> None:
    ways = linkers(threshold=0.4)
    found = {name: way(FORWARD, BACKWARD) for name, way in ways.items()}
    assert found == {
        "argmax": {(0, 0), (0, 1)},
        "threshold": {(0, 0), (0, 1), (1, 1)},
        "intersection": {(0, 0)},
        "union": {(0, 0), (0, 1), (1, 1), (2, 0)},
    }


@given(both())
def test_intersection_is_in_each_direction_and_each_direction_in_the_union(pair) -> None:
    forward, backward = pair
    directions = argmax(forward, backward), turned(links(backward))
    for direction in directions:
        assert intersection(forward, backward) <= direction <= union(forward, backward)
    assert intersection(forward, backward) == directions[0] & directions[1]


@given(both())
def test_the_other_way_round_gives_the_same_links_turned(pair) -> None:
    forward, backward = pair
    for way in (intersection, union):
        assert way(backward, forward) == turned(way(forward, backward))


@given(both(), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_higher_threshold_gives_a_part_of_the_links(pair, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert above(*pair, threshold=high) <= above(*pair, threshold=low)


@given(both(), st.floats(0.51, 1))
def test_above_half_a_word_of_a_softmax_has_one_link_at_most(pair, threshold: float) -> None:
    weights = pair[0] / np.maximum(pair[0].sum(axis=1, keepdims=True), 1e-9)
    found = above(weights, weights.T, threshold=threshold)
    assert len({target for _, target in found}) == len(found)
    assert found <= argmax(weights, weights.T)


def test_no_words_no_links() -> None:
    for way in linkers(threshold=0.5).values():
        assert way(np.zeros((0, 3)), np.zeros((3, 0))) == frozenset()
        assert way(np.zeros((2, 3)), np.zeros((3, 2))) == frozenset()
