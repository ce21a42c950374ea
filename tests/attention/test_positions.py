"""Positions added to embeddings, and positions told inside the score."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from translate.attention.dot_product import fused_attention, readable_attention
from translate.attention.positions import (
    TABULATED,
    LinearBiases,
    RelativeKeys,
    SinusoidalPositions,
    Waves,
    alibi_slopes,
    rotate,
    sinusoidal,
)

Randn = Callable[..., Tensor]
EXACT = {"rtol": 0.0, "atol": 1e-12}


def distances(length: int) -> Tensor:
    at = torch.arange(length)
    return at - at[:, None]


def test_sinusoidal_positions_follow_the_formula_from_any_start(randn: Randn) -> None:
    wave = sinusoidal(3, 2, randn(1, 6))
    for position in (3, 4):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert wave[position - 3, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert wave[position - 3, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_a_word_has_its_position_however_it_is_read(randn: Randn) -> None:
    """One by one or together, from the table or past its end."""
    positions = SinusoidalPositions(d_model=6)
    words = randn(1, TABULATED + 4, 6).float()
    whole = positions(words)
    torch.testing.assert_close(whole - words, sinusoidal(0, TABULATED + 4, words)[None])
    for t in range(TABULATED - 3, TABULATED + 4):
        torch.testing.assert_close(positions(words[:, t : t + 1], start=t)[:, 0], whole[:, t])
    late = positions(words[:, TABULATED - 2 :], start=TABULATED - 2)
    torch.testing.assert_close(late, whole[:, TABULATED - 2 :])


@pytest.mark.parametrize(
    "make",
    [lambda: Waves(d_model=6), lambda: LinearBiases(num_heads=12)],
    ids=["waves", "ALiBi"],
)
def test_in_a_wider_type_they_are_not_what_a_narrower_one_had(make) -> None:
    for kept, expected in zip(make().bfloat16().float().buffers(), make().buffers(), strict=True):
        assert torch.equal(kept, expected)


@pytest.mark.parametrize("compiling", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_rotary_positions_turn_each_pair_by_its_own_angle(
    compiling: bool, dtype: torch.dtype, randn: Randn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pair i of position p is turned, in its plane, by p 10000^(-2i/K)."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    x = randn(2, 3, 5, 8).to(dtype)
    expected = torch.empty(2, 3, 5, 8)
    for p in range(5):
        for i in range(4):
            angle = (7 + p) * 10_000 ** (-2 * i / 8)
            left, right = x[:, :, p, 2 * i].float(), x[:, :, p, 2 * i + 1].float()
            expected[:, :, p, 2 * i] = left * math.cos(angle) - right * math.sin(angle)
            expected[:, :, p, 2 * i + 1] = left * math.sin(angle) + right * math.cos(angle)
    actual = rotate(x, sinusoidal(7, 5, x))
    assert actual.dtype == dtype
    # in bfloat16 waves have eight bits, and so have their products
    within = 0.05 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=within)


def test_rotary_scores_depend_on_distance_alone(randn: Randn) -> None:
    query, key = randn(1, 1, 1, 8), randn(1, 1, 1, 8)

    def turned(x: Tensor, at: int) -> Tensor:
        return rotate(x, sinusoidal(at, 1, x))

    def score(at: int, of: int) -> float:
        return float((turned(query, at) * turned(key, of)).sum())

    assert score(7, 4) == pytest.approx(score(12, 9), abs=1e-12)
    assert score(7, 4) != pytest.approx(score(7, 5), abs=1e-3)
    torch.testing.assert_close(turned(query, 5).norm(), query.norm(), **EXACT)


def test_relative_scores_are_those_of_the_paper(randn: Randn) -> None:
    """e_ij = q_i · (k_j + a_ij) / √d_k with a_ij = w_clip(j - i, -m, m) (Shaw et al. 2018)."""
    relation = RelativeKeys(d_k=4, max_distance=2).double()
    query, keys, values = randn(2, 3, 6, 4), randn(2, 3, 6, 4), randn(2, 3, 6, 4)
    scores = torch.empty(2, 3, 6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            a = relation.w[min(max(j - i, -2), 2) + 2]
            scores[:, :, i, j] = (query[:, :, i] * (keys[:, :, j] + a)).sum(-1) / 2
    expected = scores.softmax(-1)
    bias = relation(query, distances(6))
    output, weights = readable_attention(query, keys, values, bias=bias)
    torch.testing.assert_close(weights, expected, **EXACT)
    torch.testing.assert_close(output, expected @ values, **EXACT)
    torch.testing.assert_close(fused_attention(query, keys, values, bias=bias), output, **EXACT)


def test_relative_keys_learn(randn: Randn) -> None:
    """Through either twin, each w gets the gradient of the distances it stands for."""
    relation = RelativeKeys(d_k=4, max_distance=2).double()
    query, keys, values = randn(1, 2, 6, 4), randn(1, 2, 6, 4), randn(1, 2, 6, 4)
    bias = relation(query, distances(6))
    fused = fused_attention(query, keys, values, bias=bias).square().sum()
    readable = readable_attention(query, keys, values, bias=bias)[0].square().sum()
    (ours,) = torch.autograd.grad(fused, relation.w, retain_graph=True)
    (theirs,) = torch.autograd.grad(readable, relation.w)
    torch.testing.assert_close(ours, theirs, **EXACT)
    assert (ours.abs().sum(1) > 0).all()


def test_alibi_slopes_of_the_paper() -> None:
    """Section 3: eight heads have 1/2, 1/4 … 1/256; sixteen 1/√2, 1/2 … 1/256."""
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    assert alibi_slopes(1) == [2.0**-8]
    assert alibi_slopes(6) == pytest.approx(
        [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]  # four heads, then every other of eight
    )


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_alibi_takes_the_distance_from_the_score(causal: bool, randn: Randn) -> None:
    """softmax(q_i · k_j / √d_k - m_h |i - j|)."""
    query, keys, values = randn(1, 2, 5, 4), randn(1, 2, 5, 4), randn(1, 2, 5, 4)
    slopes = [2.0**-4, 2.0**-8]
    scores = torch.full((2, 5, 5), -math.inf, dtype=torch.float64)
    for h in range(2):
        for i in range(5):
            for j in range(i + 1 if causal else 5):
                scores[h, i, j] = query[0, h, i] @ keys[0, h, j] / 2 - slopes[h] * abs(i - j)
    bias = LinearBiases(num_heads=2).double()(query, distances(5))
    _, weights = readable_attention(query, keys, values, causal=causal, bias=bias)
    torch.testing.assert_close(weights[0], scores.softmax(-1), **EXACT)
    fused = fused_attention(query, keys, values, causal=causal, bias=bias)
    torch.testing.assert_close(fused, weights @ values, **EXACT)
