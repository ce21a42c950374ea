from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translate.inference.segments import by_length, has_text, split


@pytest.mark.parametrize(
    "line", ["", " ", "\t\u00a0\u3000", "\u200b\ufeff", "\x00\x07", "\u2028", "\ud800"]
)
def test_what_cannot_be_seen_is_no_text(line: str) -> None:
    assert not has_text(line)


@pytest.mark.parametrize("line", ["a", " .", "🚂", "\u200b7", "\ue000", "\u0378", "\ufffd"])
def test_what_can_be_seen_is_text(line: str) -> None:
    assert has_text(line)


@given(st.lists(st.sampled_from(["▁a", "b", ".", "▁"])), st.integers(1, 8))
def test_segments_are_all_pieces_in_order_and_within_the_limit(pieces, limit) -> None:
    segments = split(pieces, limit)
    assert [piece for segment in segments for piece in pieces[segment]] == pieces
    assert all(len(pieces[segment]) <= limit for segment in segments)
    assert all(pieces[segment] for segment in segments) or not pieces


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (9, ["▁Go▁on.▁Sto p▁now."]),
        (5, ["▁Go▁on.", "▁Sto p▁now."]),  # after a sentence
        (2, ["▁Go", "▁on.", "▁Sto p", "▁now."]),  # after a word
        (1, ["▁Go", "▁on", ".", "▁Sto", " p", "▁now", "."]),  # anywhere
    ],
)
def test_segments_end_after_a_sentence_else_a_word_else_anywhere(limit, expected) -> None:
    pieces = ["▁Go", "▁on", ".", "▁Sto", " p", "▁now", "."]
    assert ["".join(pieces[segment]) for segment in split(pieces, limit)] == expected


@given(st.lists(st.integers(1, 30)), st.integers(1, 60))
def test_batches_hold_every_item_once_within_the_budget(lengths, budget) -> None:
    batches = list(by_length(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget
