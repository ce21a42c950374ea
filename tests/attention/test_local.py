"""Local attention against loops written from section 3.2 of Luong et al. 2015."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from translate.attention.masks import padding_mask, window_around
from translate.attention.scores import LOCAL, Alignment, MonotonicAlignment, PredictiveAlignment

EXACT = {"rtol": 0.0, "atol": 1e-12}
QUERY = 3


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def make(name: str, window: int) -> Alignment:
    torch.manual_seed(1)
    return LOCAL[name](query_size=QUERY, window=window).double()


def middle(align: Alignment, query: Tensor, length: int, t: int) -> float:
    """p_t: t itself, or what eq. 9 says of the query."""
    if not isinstance(align, PredictiveAlignment):
        return t
    inner = [math.tanh(row @ query) for row in align.W_p.weight.detach()]
    v_p = align.v_p.weight[0].tolist()
    return length / (1 + math.exp(-sum(v * x for v, x in zip(v_p, inner, strict=True))))


def formula(align: Alignment, scores: Tensor, query: Tensor, length: int, t: int) -> list[float]:
    """One row: softmax in the window (eq. 7), times the Gaussian for local-p (eq. 10)."""
    D = align.window
    p = middle(align, query, length, t)
    inside = [i for i in range(length) if p - D <= i <= p + D]
    total = sum(math.exp(scores[i]) for i in inside)
    row = [0.0] * len(scores)
    for i in inside:
        row[i] = math.exp(scores[i]) / total
        if isinstance(align, PredictiveAlignment):
            sigma = D / 2
            row[i] *= math.exp(-((i - p) ** 2) / (2 * sigma**2))
    return row


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("name", LOCAL)
def test_weights_are_the_formula_of_the_paper(name: str, window: int) -> None:
    lengths, T, S = [7, 3, 1], 9, 7  # targets run past all three sources
    align = make(name, window)
    scores, query = randn(3, T, S), 2 * randn(3, T, QUERY, seed=1)
    weights = align(scores, padding_mask(torch.tensor(lengths), S), query, torch.arange(T))
    for b, length in enumerate(lengths):
        for t in range(T):
            row = formula(align, scores[b, t], query[b, t], length, t)
            expected = torch.tensor(row, dtype=torch.float64)
            torch.testing.assert_close(weights[b, t], expected, **EXACT)
            # not nearly: exactly nothing outside the window
            assert (weights[b, t] == 0).tolist() == [weight == 0 for weight in row]


def test_window_around_holds_both_ends() -> None:
    seen = window_around(torch.tensor([0.0, 2.5, 4.0]), 6, 2)
    assert [row.nonzero().flatten().tolist() for row in seen] == [
        [0, 1, 2], [1, 2, 3, 4], [2, 3, 4, 5],
    ]  # fmt: skip


def test_a_target_that_has_left_the_source_sees_nothing() -> None:
    align = MonotonicAlignment(query_size=QUERY, window=2)
    scores = randn(1, 3, 4).requires_grad_()
    mask = padding_mask(torch.tensor([3]), 4)
    weights = align(scores, mask, randn(1, 3, QUERY), torch.tensor([4, 5, 50]))
    assert weights[0, 0].tolist() == [0, 0, 1, 0]  # its window holds the last word alone
    assert weights[0, 1:].tolist() == [[0] * 4, [0] * 4]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


drawn = {
    "name": st.sampled_from(sorted(LOCAL)),
    "length": st.integers(1, 8),
    "window": st.integers(1, 5),
    "scale": st.sampled_from([0.0, 1.0, 1e4]),
    "seed": st.integers(0, 99),
}


@given(**drawn)
def test_rows_sum_to_what_is_documented(
    name: str, length: int, window: int, scale: float, seed: int
) -> None:
    align, T = make(name, window), 10
    scores, query = scale * randn(1, T, length, seed=seed), 3 * randn(1, T, QUERY, seed=seed + 1)
    mask = torch.ones(1, length, dtype=torch.bool)
    with torch.no_grad():
        weights = align(scores, mask, query, torch.arange(T))
    sums = weights.sum(-1)[0]
    assert (weights >= 0).all()
    if name == "local_p":  # the window is never empty: p_t lies within the sentence
        assert (sums >= math.exp(-2) - 1e-12).all()
        assert (sums <= 1 + 1e-12).all()
    else:
        expected = (torch.arange(T) < length + window).double()
        torch.testing.assert_close(sums, expected, **EXACT)
    values = randn(length, QUERY, seed=seed + 2)
    values_or_nothing = torch.cat((values, torch.zeros(1, QUERY)))
    context = weights[0] @ values
    assert (context <= values_or_nothing.amax(0) + 1e-9).all()
    assert (context >= values_or_nothing.amin(0) - 1e-9).all()


@given(extra=st.integers(1, 5), content=st.sampled_from([0.0, 1e6, -1e6]), **drawn)
def test_padding_changes_nothing(
    extra: int, content: float, name: str, length: int, window: int, scale: float, seed: int
) -> None:
    align, T = make(name, window), 6
    scores, query = scale * randn(1, T, length, seed=seed), randn(1, T, QUERY, seed=seed + 1)
    mask = torch.ones(1, length, dtype=torch.bool)
    alone = align(scores, mask, query, torch.arange(T))
    padded = align(
        F.pad(scores, (0, extra), value=content), F.pad(mask, (0, extra)), query, torch.arange(T)
    )
    torch.testing.assert_close(padded, F.pad(alone, (0, extra)), **EXACT)


def test_the_place_to_look_at_is_learned() -> None:
    """All scores are alike, so that only the Gaussian can move the weights: to the fourth word."""
    torch.manual_seed(0)  # where it looks at first, the fourth word is within the window
    align = PredictiveAlignment(query_size=QUERY, window=4)
    optimizer = torch.optim.Adam(align.parameters(), lr=0.05)
    query, mask = randn(1, 1, QUERY).float(), torch.ones(1, 10, dtype=torch.bool)
    for _ in range(100):
        weights = align(torch.zeros(1, 1, 10), mask, query, torch.tensor([0]))
        loss = -weights[0, 0, 3].log()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert align.centres(query, mask).item() == pytest.approx(3, abs=0.5)


def test_the_place_to_look_at_is_exact_in_bf16() -> None:
    align = PredictiveAlignment(query_size=QUERY, window=4).bfloat16()
    query, mask = randn(1, 20, QUERY).bfloat16(), torch.ones(1, 500, dtype=torch.bool)
    found = align.centres(query, mask)
    torch.testing.assert_close(found, align.float().centres(query.float(), mask))
    weights = align.bfloat16()(torch.zeros(1, 20, 500).bfloat16(), mask, query, torch.arange(20))
    assert weights.dtype == torch.bfloat16


@pytest.mark.parametrize("name", LOCAL)
def test_weights_depend_on_the_position_given_not_on_the_row(name: str) -> None:
    """A step at t = 5 alone is row 5 of the whole target."""
    align, scores, query = make(name, 2), randn(1, 8, 9), randn(1, 8, QUERY, seed=1)
    mask = torch.ones(1, 9, dtype=torch.bool)
    whole = align(scores, mask, query, torch.arange(8))
    step = align(scores[:, 5:6], mask, query[:, 5:6], torch.tensor([5]))
    torch.testing.assert_close(step[:, 0], whole[:, 5], **EXACT)
