"""Words from pieces, and the attention between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.extras.word_attention import join, word_attention, word_spans

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
