"""The scores of recurrent models, each against a loop written from its formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from translate.attention.masks import padding_mask
from translate.attention.scores import SCORES, AlignmentScore, GlobalAlignment

EXACT = {"rtol": 0.0, "atol": 1e-12}
T, S, SIZE = 3, 6, 4

FORMULAS: dict[str, Callable[[AlignmentScore, Tensor, Tensor], Tensor]] = {
    "additive": lambda a, s, h: a.v.weight[0] @ torch.tanh(a.W_Q.weight @ s + a.W_K.weight @ h),
    "dot": lambda a, s, h: s @ h,
    "scaled_dot": lambda a, s, h: s @ h / math.sqrt(SIZE),
    "general": lambda a, s, h: s @ (a.W.weight / math.sqrt(len(s))) @ h,
    "concat": lambda a, s, h: (
        a.v.weight[0]
        @ torch.tanh(torch.cat((a.W_Q.weight, a.W_K.weight), dim=1) @ torch.cat((s, h)))
    ),
    "projected": lambda a, s, h: torch.tanh(a.W_Q.weight @ s) @ torch.tanh(a.W_K.weight @ h),
}


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def make(name: str) -> AlignmentScore:
    torch.manual_seed(1)
    return SCORES[name](query_size=SIZE, memory_size=SIZE, attention_size=5).double()


def test_every_score_has_its_formula_here() -> None:
    assert FORMULAS.keys() == SCORES.keys()


@pytest.mark.parametrize("name", SCORES)
def test_score_is_the_formula_of_the_paper(name: str) -> None:
    score, s, h = make(name), randn(2, T, SIZE), randn(2, S, SIZE, seed=1)
    actual = score(s, score.keys(h))
    for b in range(2):
        for t in range(T):
            for i in range(S):
                expected = FORMULAS[name](score, s[b, t], h[b, i])
                torch.testing.assert_close(actual[b, t, i], expected, **EXACT)


@pytest.mark.parametrize("name", ["additive", "general", "concat", "projected"])
def test_query_and_memory_may_differ_in_size(name: str) -> None:
    score = SCORES[name](query_size=3, memory_size=4, attention_size=5).double()
    assert score(randn(2, T, 3), score.keys(randn(2, S, 4))).shape == (2, T, S)


@pytest.mark.parametrize("name", SCORES)
def test_score_teaches_all_it_was_made_of(name: str) -> None:
    score = make(name)
    s, h = randn(1, T, SIZE).requires_grad_(), randn(1, S, SIZE, seed=1).requires_grad_()
    score(s, score.keys(h)).sin().sum().backward()
    for learned in (s, h, *score.parameters()):
        assert learned.grad is not None
        assert learned.grad.abs().max() > 0


def rows_projected(score: AlignmentScore) -> int:
    """How many vectors went through a matrix for T queries asked in turn and S keys."""
    counted = []
    for layer in score.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(
                lambda layer, _, out: counted.append(out.numel() // layer.out_features)
            )
    keys = score.keys(randn(1, S, SIZE))
    for query in randn(1, T, SIZE).split(1, dim=1):
        score(query, keys)
    return sum(counted)


def test_common_space_takes_m_plus_n_projections_where_additive_takes_m_times_n() -> None:
    assert rows_projected(make("projected")) == T + S
    assert rows_projected(make("additive")) == T + S + T * S


@given(
    lengths=st.lists(st.integers(1, S), min_size=1, max_size=3),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_global_rows_sum_to_one_and_contexts_lie_among_the_values(
    lengths: list[int], scale: float, seed: int
) -> None:
    batch = len(lengths)
    mask = padding_mask(torch.tensor(lengths), S)
    scores, values = scale * randn(batch, T, S, seed=seed), randn(batch, S, SIZE, seed=seed + 1)
    weights = GlobalAlignment()(scores, mask, randn(batch, T, SIZE), torch.arange(T))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(batch, T).double(), **EXACT)
    context = weights @ values
    for b, length in enumerate(lengths):
        assert (weights[b, :, length:] == 0).all()
        real = values[b, :length]
        assert (context[b] <= real.amax(0) + 1e-12).all()
        assert (context[b] >= real.amin(0) - 1e-12).all()


def test_global_weights_are_the_softmax_over_real_positions() -> None:
    scores, mask = randn(2, T, S), padding_mask(torch.tensor([S, 2]), S)
    weights = GlobalAlignment()(scores, mask, randn(2, T, SIZE), torch.arange(T))
    total = sum(math.exp(e) for e in scores[1, 2, :2])
    for i in range(2):
        assert weights[1, 2, i].item() == pytest.approx(
            math.exp(scores[1, 2, i]) / total, abs=1e-12
        )
