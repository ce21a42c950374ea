"""Linguistic coverage against the formula of Tu et al. 2016, sections 3.1.1 and 3.2."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from translate.attention.scores import AdditiveAttention, LinguisticCoverage

EXACT = {"rtol": 0.0, "atol": 1e-12}
S, SIZE, A = 5, 4, 3


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def make() -> tuple[AdditiveAttention, LinguisticCoverage]:
    torch.manual_seed(1)
    score = AdditiveAttention(query_size=SIZE, memory_size=SIZE, attention_size=A)
    coverage = LinguisticCoverage(memory_size=SIZE, attention_size=A, max_fertility=2.0)
    return score.double(), coverage.double()


def test_covered_score_is_the_formula_of_the_paper() -> None:
    """Two sentences with three hypotheses each; each hypothesis has looked at words of its own."""
    score, coverage = make()
    h, s = randn(2, S, SIZE), randn(6, 1, SIZE, seed=1)
    attended = randn(6, S, seed=2).abs()
    fertility = coverage.fertility(h)
    actual = score(s, coverage(score.keys(h), attended, fertility))
    for n in range(6):
        for i in range(S):
            word = h[n // 3, i]
            phi = 2.0 / (1 + torch.exp(-coverage.U_f.weight[0] @ word))
            C = attended[n, i] / phi
            inner = score.W_Q.weight @ s[n, 0] + score.W_K.weight @ word
            expected = score.v.weight[0] @ torch.tanh(inner + coverage.V.weight[:, 0] * C)
            torch.testing.assert_close(actual[n, 0, i], expected, **EXACT)


def test_nothing_covered_is_the_plain_additive_score() -> None:
    score, coverage = make()
    h, s = randn(1, S, SIZE), randn(1, 1, SIZE, seed=1)
    keys = coverage(score.keys(h), torch.zeros(1, S).double(), coverage.fertility(h))
    torch.testing.assert_close(score(s, keys), score(s, score.keys(h)), **EXACT)


def test_fertility_lies_below_its_bound() -> None:
    _, coverage = make()
    fertility = coverage.fertility(100 * randn(1, S, SIZE))
    assert (fertility > 0).all()
    assert (fertility <= 2).all()


@pytest.mark.parametrize("logit", [-12.0, -20.0])
def test_a_word_that_stands_for_nothing_has_a_score_in_float16(logit) -> None:
    """Its fertility is nearly 0, and what was looked at is divided by that."""
    coverage = make()[1].float()
    h = torch.ones(1, S, SIZE)
    with torch.no_grad():
        coverage.U_f.weight.fill_(logit / SIZE)
    with torch.autocast("cpu", dtype=torch.float16):
        fertility = coverage.fertility(h.half())
        for attended in (torch.zeros(1, S), torch.full((1, S), 1.5)):
            coverage.zero_grad()
            keys = coverage(torch.zeros(1, S, A, dtype=torch.float16), attended, fertility)
            torch.tanh(keys).sum().backward(retain_graph=True)
            assert not keys.isnan().any()
            assert all(p.grad is None or p.grad.isfinite().all() for p in coverage.parameters())
