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
    join,
    linkers,
    links,
    turned,
    union,
    word_attention,
    word_spans,
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


def test_lists_from_a_data_set_will_do() -> None:
    assert alignment_error_rate([[[0, 1]]], [[]], [[(0, 1)]]).error_rate == 0


def test_what_has_no_rate_is_refused() -> None:
    with pytest.raises(
        UserError, match="sure links for 1 sentence, possible for 2, predicted for 0"
    ):
        alignment_error_rate([[]], [[], []], [])
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


SOURCE = ["▁Dampf", "schiff", "▁", "!", "</s>"]
TARGET = ["▁steam", "▁ship", "!", "</s>"]


def test_pieces_join_to_words() -> None:
    assert word_spans(SOURCE) == [(0, 2), (2, 4), (4, 5)]
    assert word_spans(["ohne", "▁x"]) == [(0, 1), (1, 2)]
    assert word_spans([]) == []


def test_pieces_are_words_where_no_spaces_are_written() -> None:
    def words(*pieces: str) -> list[str]:
        return [join(pieces[start:stop]) for start, stop in word_spans(pieces)]

    assert words("▁", "今朝", "東京", "で", "。", "</s>") == ["今朝", "東京", "で。", "</s>"]
    assert words("▁我", "用", "Py", "thon", "写", "▁x") == ["我", "用", "Python", "写", "x"]
    assert words("▁コ", "ー", "ヒ", "々") == ["コー", "ヒ々"]  # marks lean on what is before them
    assert words("▁ไ", "ป", "ิ") == ["ไ", "ปิ"]


def test_words_receive_sums_and_give_means() -> None:
    weights = np.array(
        [
            [0.3, 0.4, 0.1, 0.1, 0.1],
            [0.1, 0.2, 0.0, 0.0, 0.7],
            [0.0, 0.0, 0.5, 0.5, 0.0],
            [0.0, 0.1, 0.0, 0.0, 0.9],
        ]
    )
    joined = word_attention(SOURCE, TARGET, weights)
    assert joined.source == ("Dampfschiff", "!", "</s>")
    assert joined.target == ("steam", "ship!", "</s>")
    expected = [[0.7, 0.2, 0.1], [0.15, 0.5, 0.35], [0.1, 0.0, 0.9]]
    np.testing.assert_allclose(joined.weights, expected)
    assert joined.links() == {(0, 0), (1, 1)}


def test_unknown_words_that_are_one_piece_keep_their_space() -> None:
    joined = word_attention(["▁a▁b", "</s>"], ["▁c", "</s>"], np.full((2, 2), 0.5))
    assert joined.source == ("a b", "</s>")


def test_weight_on_the_end_mark_does_not_unlink_a_word() -> None:
    joined = word_attention(["▁a", "</s>"], ["▁b", "</s>"], np.array([[0.2, 0.8], [0.0, 1.0]]))
    assert joined.links() == {(0, 0)}


pieces = st.lists(st.sampled_from(["▁a", "b", "▁", "</s>", "<0xC3>"]), min_size=1, max_size=7)


@given(pieces, pieces, st.integers(0, 2**32 - 1))
def test_joined_rows_still_sum_to_one(source: list[str], target: list[str], seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(source)), size=len(target))
    joined = word_attention(source, target, weights)
    assert joined.weights.shape == (len(joined.target), len(joined.source))
    np.testing.assert_allclose(joined.weights.sum(axis=1), 1)


def test_heads_are_joined_each_for_itself() -> None:
    heads = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 4))
    joined = word_attention(SOURCE, TARGET, heads)
    assert joined.weights.shape == (2, 3, 3, 3)
    for layer, head in np.ndindex(2, 3):
        one = word_attention(SOURCE, TARGET, heads[layer, head])
        np.testing.assert_array_equal(joined.weights[layer, head], one.weights)


def test_byte_pieces_are_spelled() -> None:
    assert join(["▁caf", "<0xC3>", "<0xA9>", "s"]) == "cafés"
    assert join(["<0xE2>", "<0x82>"]) == "\N{REPLACEMENT CHARACTER}"


def test_a_matrix_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 2\) for 1 target and 2 source"):
        word_attention(["a", "b"], ["c"], np.ones((2, 2)))


def test_a_character_in_bytes_is_a_word_where_letters_are() -> None:
    pieces = ["▁我", "看", "<0xF0>", "<0xA0>", "<0xAE>", "<0xB7>", "书", "<0xC3>", "!", "</s>"]
    spans = word_spans(pieces)
    assert [join(pieces[a:b]) for a, b in spans] == ["我", "看", "𠮷", "书\ufffd!", "</s>"]
    latin = ["▁caf", "<0xC3>", "<0xA9>", "s", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert [join(latin[a:b]) for a, b in word_spans(latin)] == ["cafés😀"]


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
