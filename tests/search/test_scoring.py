from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from translate.search.scoring import (
    PENALTIES,
    best_next,
    coverage_penalty,
    length_limits,
    top_k,
)
from translate.vocabulary import BOS, EOS, PAD


@given(st.integers(1, 700), st.integers(1, 6), st.integers(0, 10**6))
def test_top_k_is_topk(width: int, count: int, seed: int) -> None:
    values = torch.randn(3, width, generator=torch.Generator().manual_seed(seed))
    count = min(count, width)
    best, columns = top_k(values, count)
    expected = values.topk(count)
    assert torch.equal(best, expected.values)
    assert torch.equal(columns, expected.indices)


def test_probabilities_are_of_the_whole_vocabulary_in_float32_at_least() -> None:
    logits = torch.randn(2, 9, dtype=torch.bfloat16)
    best, tokens = best_next(logits, 9, ending=torch.tensor([False, False]))
    assert best.dtype == torch.float32
    expected = logits.float().log_softmax(1).gather(1, tokens)
    torch.testing.assert_close(best[:, :7], expected[:, :7])
    assert best[:, 7:].eq(-math.inf).all()  # <pad> and <s>
    assert {PAD, BOS}.isdisjoint(tokens[:, :7].flatten().tolist())


def test_a_row_at_its_end_can_only_end() -> None:
    logits = torch.randn(2, 9, dtype=torch.float64)
    best, tokens = best_next(logits, 3, ending=torch.tensor([False, True]))
    assert tokens[1, 0] == EOS
    assert best[1].tolist() == [logits[1].log_softmax(0)[EOS].item(), -math.inf, -math.inf]
    assert best[0].isfinite().all()


def test_limits_count_pieces_without_the_end_of_sentence() -> None:
    assert length_limits([4, 1], ratio=1.5, offset=2, readable=None) == [6, 2]
    assert length_limits([4, 1], ratio=1.5, offset=2, readable=5) == [4, 2]  # and <s>


def test_coverage_penalty_is_equation_14_over_the_words() -> None:
    coverage = torch.tensor([[0.5, 1.7, 0.25, 0.0], [0.1, 0.0, 1.0, 0.0]], dtype=torch.float64)
    words = torch.tensor([[True, True, False, False], [True, False, True, False]])
    found = coverage_penalty(coverage, words, 0.3)
    expected = [0.3 * math.log(0.5), 0.3 * math.log(0.1)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_a_word_without_any_attention_costs_much_but_not_everything() -> None:
    nothing, words = torch.zeros(1, 2), torch.tensor([[True, False]])
    assert coverage_penalty(nothing, words, 1.0).item() == pytest.approx(-87.34, abs=0.01)
    assert coverage_penalty(torch.zeros(1, 0), words[:, :0], 1.0).item() == 0


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_never_fall_which_early_stopping_relies_on(name: str) -> None:
    values = [PENALTIES[name](length, 0.6) for length in range(1, 50)]
    assert values == sorted(values)
    assert values[0] == 1
