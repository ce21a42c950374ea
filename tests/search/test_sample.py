from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import batch, next_log_probs

from translate.models.seq2seq import Seq2Seq
from translate.search import GreedyConfig, GreedySearch, SampleConfig, SampleSearch
from translate.search.sampling import drawn_from, min_p, top_k, top_p, typical
from translate.vocabulary import EOS

Models = Callable[..., Seq2Seq]
PLAIN = {
    "n_best": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0,
    "seed": 1, "max_length_ratio": 0.0, "max_length_offset": 2,
}  # fmt: skip


def sample(**changes: Any) -> SampleSearch:
    return SampleSearch(SampleConfig(kind="sample", **PLAIN | changes))


def slow_filter(log_probs: list[float], options: dict[str, Any]) -> dict[int, float]:
    """Token → probability, one filter after another as their papers put them."""
    weights = {t: math.exp(p / options["temperature"]) for t, p in enumerate(log_probs)}

    def shares(kept) -> dict[int, float]:
        total = sum(weights[t] for t in kept)
        return {t: weights[t] / total for t in kept if weights[t] > 0}

    def first_to_hold(probs: dict[int, float], mass: float, key) -> list[int]:
        kept: list[int] = []
        for token in sorted(probs, key=key):
            if sum(probs[t] for t in kept) < mass:
                kept.append(token)
        return kept

    probs = shares(weights)
    if options["top_k"]:
        probs = shares(sorted(probs, key=lambda t: -probs[t])[: options["top_k"]])
    probs = shares(first_to_hold(probs, options["top_p"], lambda t: -probs[t]))
    likeliest = max(probs.values())
    probs = shares([t for t in probs if probs[t] >= options["min_p"] * likeliest])
    entropy = -sum(p * math.log(p) for p in probs.values())
    surprise = {t: abs(-math.log(p) - entropy) for t, p in probs.items()}
    return shares(first_to_hold(probs, options["typical_p"], surprise.__getitem__))


filtering = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.5, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 1, 3, 50]),
        "top_p": st.sampled_from([0.3, 0.8, 1.0]),
        "min_p": st.sampled_from([0.0, 0.2, 0.9]),
        "typical_p": st.sampled_from([0.3, 0.7, 1.0]),
    }
)


@pytest.mark.parametrize(
    ("kept", "tokens"),
    [
        (lambda p: top_p(p, 0.5), [0]),
        (lambda p: top_p(p, 0.75), [0, 1]),
        (lambda p: top_p(p, 0.8), [0, 1, 2]),  # of two alike the first
        (lambda p: top_p(p, 1e-46), [0]),  # 0 as a float32
        (lambda p: typical(p, 1e-46), [1]),
        (lambda p: min_p(p, 1.0), [0]),
        (lambda p: min_p(p, 0.5), [0, 1]),
        (lambda p: top_k(p, 2), [0, 1]),
    ],
)
def test_filters_keep_what_just_reaches_their_bound(kept, tokens: list[int]) -> None:
    log_probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64).log()
    assert kept(log_probs).isfinite().nonzero()[:, 1].tolist() == tokens


@settings(max_examples=60)
@given(filtering, st.integers(0, 10**6))
def test_filters_equal_their_slow_twins(options, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(2, 9, generator=generator, dtype=torch.float64).log_softmax(1)
    log_probs[0, 3] = -math.inf  # as a rule leaves it
    found = sample(**options).filtered(log_probs).exp()
    for row, given_log_probs in zip(found, log_probs.tolist(), strict=True):
        expected = slow_filter(given_log_probs, options)
        assert row.tolist() == pytest.approx([expected.get(t, 0) for t in range(9)], abs=1e-10)


@given(st.floats(0, 1, exclude_max=True, width=32), st.integers(0, 10**6))
def test_what_is_drawn_has_the_chance_in_its_part(chance: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(1, 7, generator=generator).log_softmax(1)
    log_probs[0, [0, 6]] = -math.inf
    (token,) = drawn_from(log_probs, torch.tensor([chance])).tolist()
    assert log_probs[0, token] > -math.inf
    ends = log_probs[0].exp().cumsum(0) / log_probs[0].exp().sum()
    start = ends[token - 1].item()
    assert start - 1e-6 <= chance <= ends[token].item() + 1e-6


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7, "top_k": 3}, {"top_p": 0.8}, {"min_p": 0.3}, {"typical_p": 0.7}],
    ids=str,
)
def test_samples_come_as_often_as_they_are_likely(table_model: Models, options) -> None:
    """Pearson's chi-square over every string there is, against the exact distribution."""
    model, source, count = table_model(6, seed=3, end=0.5), [4, 5], 4000
    exact = {}
    for string in itertools.chain(*(itertools.product([1, 4, 5], repeat=n) for n in range(3))):
        probability = 1.0
        for t, token in enumerate((*string, EOS)[:3]):
            probs = next_log_probs(model, source, string[:t])
            probs[0] = probs[2] = -math.inf  # <pad> and <s>
            if t < 2:  # at the limit </s> is certain
                probability *= slow_filter(probs, {**PLAIN, **options}).get(token, 0)
        exact[string] = probability
    assert sum(exact.values()) == pytest.approx(1)
    (found,) = sample(n_best=count, **options)(model, *batch(source))
    counts = Counter(hypothesis.tokens for hypothesis in found)
    assert counts.keys() <= {string for string, p in exact.items() if p > 0}
    square = sum((counts[s] - count * p) ** 2 / (count * p) for s, p in exact.items() if p > 0)
    freedom = sum(p > 0 for p in exact.values()) - 1
    assert square < freedom + 4 * math.sqrt(2 * freedom) + 4


def test_a_seed_repeats_and_another_differs(table_model: Models) -> None:
    model = table_model(30, seed=2)
    ids = [[4, 5], [6], [4, 5]]

    def tokens(**changes: Any):
        found = sample(n_best=3, max_length_offset=6, **changes)(model, *batch(*ids))
        return [[h.tokens for h in hypotheses] for hypotheses in found]

    assert tokens() == tokens()
    assert tokens()[0] == tokens()[2]  # the sentence decides, not its place
    assert tokens()[0] != tokens(seed=2)[0]
    assert len(set(tokens()[0])) == 3


def test_more_samples_and_a_higher_limit_only_add(table_model: Models) -> None:
    model = table_model(30, seed=2, end=-1.0)

    def tokens(count: int, limit: int) -> list[tuple[int, ...]]:
        """Of each sample by its number: the search's own order is of likelihood."""
        found = [sample(n_best=n, max_length_offset=limit) for n in range(1, count + 1)]
        several = [Counter(h.tokens for h in s(model, *batch([4, 5]))[0]) for s in found]
        new = [after - before for before, after in itertools.pairwise([Counter(), *several])]
        assert all(each.total() == 1 for each in new)
        return [one for each in new for one in each]

    few, long = tokens(5, limit=3), tokens(5, limit=12)
    assert [one[:3] for one in long] == few
    assert max(map(len, long)) > 6


def test_one_likeliest_token_is_greedy(table_model: Models) -> None:
    model = table_model(10, seed=5)
    greedy = GreedySearch(GreedyConfig(kind="greedy", max_length_ratio=0.0, max_length_offset=5))
    (one,), (other,) = (
        search(model, *batch([4, 5]))[0]
        for search in (greedy, sample(top_k=1, max_length_offset=5))
    )
    assert one == other
