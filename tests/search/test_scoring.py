from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from translate.errors import UserError
from translate.search import scoring
from translate.search.constraints import Constraint, length_limits
from translate.search.scoring import (
    PENALTIES,
    best_next,
    coverage_penalty,
    largest,
    likeliest,
    next_log_probs,
)
from translate.vocabulary import BOS, EOS, PAD


@given(st.sampled_from([1, 5]), st.integers(1, 700), st.integers(1, 6), st.integers(0, 10**6))
def test_largest_is_topk(rows: int, width: int, count: int, seed: int) -> None:
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    count = min(count, width)
    best, columns = largest(values, count)
    expected = values.topk(count)
    assert torch.equal(best, expected.values)
    assert torch.equal(columns, expected.indices)


def test_probabilities_are_of_the_whole_vocabulary_in_float32_at_least() -> None:
    logits = torch.randn(2, 9, dtype=torch.bfloat16)
    found = next_log_probs(logits)
    assert found.dtype == torch.float32
    words = [i for i in range(9) if i not in (PAD, BOS)]
    torch.testing.assert_close(found[:, words], logits.float().log_softmax(1)[:, words])
    assert found[:, [PAD, BOS]].eq(-math.inf).all()


def test_the_best_are_chosen_by_rank_and_told_with_their_own_probability() -> None:
    log_probs = next_log_probs(torch.randn(2, 9))
    ranks = log_probs.where(torch.arange(9) % 2 == 0, log_probs - 5)
    found = best_next(log_probs, ranks, 3, ending=torch.tensor([False, False]))
    assert torch.equal(found.tokens, ranks.topk(3).indices)
    assert torch.equal(found.ranks, ranks.topk(3).values)
    assert torch.equal(found.log_probs, log_probs.gather(1, found.tokens))


def test_a_row_at_its_end_can_only_end() -> None:
    log_probs = next_log_probs(torch.randn(3, 9, dtype=torch.float64))
    ranks = log_probs.clone()
    ranks[2] = -math.inf  # rules have left nothing
    found = best_next(log_probs, ranks, 3, ending=torch.tensor([False, True, False]))
    for row in (1, 2):
        assert found.tokens[row, 0] == EOS
        assert found.ranks[row].tolist() == [log_probs[row, EOS].item(), -math.inf, -math.inf]
    assert found.ranks[0].isfinite().all()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_rows_at_a_time_or_all_at_once(
    dtype: torch.dtype, at_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(11, 9, dtype=dtype)
    ending = torch.arange(11) % 4 == 1 if at_end else None
    log_probs = next_log_probs(logits)
    expected = best_next(log_probs, log_probs, 3, ending=ending)
    for numbers in (1, 9, 40, 99, 10**6):  # one row at a time, one, four, all, all
        monkeypatch.setattr(scoring, "CACHED", numbers)
        for column, other in zip(likeliest(logits, 3, ending=ending), expected, strict=True):
            assert torch.equal(column, other)


def test_limits_count_pieces_without_the_end_of_sentence() -> None:
    assert length_limits([4, 1], ratio=1.5, offset=2, max_length=None) == [6, 2]
    assert length_limits([4, 1], ratio=1.5, offset=2, max_length=5) == [4, 2]  # and <s>


def test_constraints_raise_a_limit() -> None:
    constraints = [Constraint(), Constraint(prefix=(4, 5), phrases=((6, 7), (6, 7), (8,)))]
    limits = length_limits([4, 1], ratio=1.5, offset=2, constraints=constraints, max_length=None)
    assert limits == [6, 5]
    told = "must contain 5 given pieces, but this model reads at most 4"
    with pytest.raises(UserError, match=told):
        length_limits([4, 1], ratio=1.5, offset=2, constraints=constraints, max_length=5)


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
