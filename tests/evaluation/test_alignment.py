"""Word alignment: words from pieces, links from weights, error rates against gold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from translate.data.plain_text import Link
from translate.errors import UserError
from translate.evaluation.alignment import (
    above,
    alignment_error_rate,
    argmax,
    intersection,
    linkers,
    links,
    turned,
    union,
)

Links = set[Link]
pairs = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)
corpora = st.lists(st.tuples(pairs, pairs, pairs), min_size=1, max_size=4)


def test_the_rate_by_hand() -> None:
    sure, possible = {(0, 0), (1, 2)}, {(2, 1), (2, 2)}
    predicted = {(0, 0), (2, 1), (3, 3)}
    scores = alignment_error_rate([sure], [possible], [predicted])
    assert scores.error_rate == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 2)


@given(corpora)
def test_fractions_stay_between_0_and_1(corpus: list[tuple[Links, Links, Links]]) -> None:
    sure, possible, predicted = zip(*corpus, strict=True)
    assume(any(sure) or any(predicted))
    scores = alignment_error_rate(sure, possible, predicted)
    assert 0 <= scores.error_rate <= 1
    assert 0 <= scores.precision <= 1
    assert 0 <= scores.recall <= 1


@given(corpora)
def test_gold_scores_0_and_any_subset_between_sure_and_possible_too(
    corpus: list[tuple[Links, Links, Links]],
) -> None:
    sure, possible, noise = zip(*corpus, strict=True)
    between = [s | (p & n) for s, p, n in zip(sure, possible, noise, strict=True)]
    assume(any(sure) or any(between))
    assert alignment_error_rate(sure, possible, between).error_rate == pytest.approx(0)


@given(corpora)
def test_without_possible_links_it_is_one_minus_f1(
    corpus: list[tuple[Links, Links, Links]],
) -> None:
    sure, _, predicted = zip(*corpus, strict=True)
    assume(any(sure) and any(predicted))
    scores = alignment_error_rate(sure, sure, predicted)
    total = scores.precision + scores.recall
    f1 = 2 * scores.precision * scores.recall / total if total else 0
    assert scores.error_rate == pytest.approx(1 - f1)


@given(corpora, st.randoms(use_true_random=False))
def test_order_of_sentences_and_sides_does_not_matter(
    corpus: list[tuple[Links, Links, Links]], random: object
) -> None:
    assume(any(sure or predicted for sure, _, predicted in corpus))
    flipped = [
        tuple({(target, source) for source, target in side} for side in sentence)
        for sentence in reversed(corpus)
    ]
    expected = alignment_error_rate(*zip(*corpus, strict=True))
    assert alignment_error_rate(*zip(*flipped, strict=True)) == expected


def test_what_has_no_rate_is_refused() -> None:
    with pytest.raises(UserError, match=r"0 sure and 0 predicted links.*: give pairs of sentences"):
        alignment_error_rate([[]], [[]], [[]])


@given(
    arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(0.01, 1))
)
def test_every_target_links_to_its_largest_weight(weights: np.ndarray) -> None:
    found = links(weights)
    assert sorted(target for _, target in found) == list(range(len(weights)))
    assert all(weights[target, source] == weights[target].max() for source, target in found)


def test_empty_rows_stay_unaligned() -> None:
    weights = np.array([[0.1, 0.9], [0.8, 0.2], [0.0, 0.0]])
    assert links(weights) == {(1, 0), (0, 1)}
    assert links(np.zeros((0, 3))) == frozenset()


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
