from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from slow_twins import batch, contains, goes_on, joints, limit, rescored

from translate.models.seq2seq import Seq2Seq
from translate.search import BeamConfig, BeamSearch, Constraint, RulesConfig
from translate.search.constraints import NO_RULES, Joints, Phrases, Position, in_turns
from translate.search.scoring import Candidates
from translate.vocabulary import EOS

Models = Callable[..., Seq2Seq]
Tokens = tuple[int, ...]


def beam(
    size: int, *, n_best: int = 1, offset: int = 8, rules: RulesConfig = NO_RULES
) -> BeamSearch:
    return BeamSearch(BeamConfig(kind="beam",
        beam_size=size, length_penalty="none", alpha=0.0, coverage_penalty=0.0, n_best=n_best,
        max_length_ratio=0.5, max_length_offset=offset, rules=rules,
    ))  # fmt: skip


# token 9 may go on with a word, so that no phrase begins with it
phrase = st.tuples(st.integers(4, 8), st.lists(st.integers(4, 9), max_size=3)).map(
    lambda parts: (parts[0], *parts[1])
)
asked = st.tuples(  # prefix, phrases and banned phrases
    st.lists(st.integers(4, 9), max_size=3),
    st.lists(phrase, max_size=3),
    st.lists(phrase, max_size=2),
)


@settings(max_examples=40)
@given(
    st.sampled_from([None, joints(10)]),
    st.lists(asked, min_size=2, max_size=2),
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(1, 8),
    st.booleans(),
)
@pytest.mark.unchecked
def test_every_translation_has_its_phrases(
    table_model: Models, where, wanted, seed, size, offset, strict
) -> None:
    """For any beam, limit and rules: phrases, prefix and the length limit that they allow."""
    constrained = [
        Constraint(tuple(y), tuple(some), tuple(never), joints=where) for y, some, never in wanted
    ]
    rules = NO_RULES
    if strict:
        rules = RulesConfig(min_length=3, no_repeat_ngram_size=2, repetition_penalty=1.5, banned=())
    model, ids = table_model(10, seed, end=1.0), [[4, 5, 6], []]
    found = beam(size, n_best=size, offset=offset, rules=rules)(
        model, *batch(*ids), constraints=constrained
    )
    for sentence, constraint, hypotheses in zip(ids, constrained, found, strict=True):
        begun = constraint.prefix
        further = {
            p
            for p in constraint.phrases
            if not any(
                begun[i : i + len(p)] == p and not goes_on(p, begun[i + len(p) :], where)
                for i in range(len(begun) - len(p))
            )
        }
        needed = len(constraint.prefix) + sum(map(len, further))
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            assert all(contains(hypothesis.tokens, p, where) for p in constraint.phrases)
            assert hypothesis.tokens[: len(constraint.prefix)] == constraint.prefix
            assert len(hypothesis.tokens) <= max(limit(sentence, offset), needed)
            own = rescored(model, sentence, hypothesis.tokens)
            assert hypothesis.token_log_probs == pytest.approx(own, abs=1e-10)


def words(first: int, last: int) -> st.SearchStrategy[Tokens]:
    return st.lists(st.integers(first, last), min_size=1, max_size=2).map(tuple)


@settings(max_examples=30)
@given(
    st.sampled_from([None, joints(10)]),
    st.lists(words(4, 6), min_size=1, max_size=2),
    st.lists(words(6, 8), min_size=1, max_size=2),
    st.integers(0, 10**6),
    st.integers(1, 5),
)
@example(joints(10), [(5,)], [(6,)], 0, 4)  # a word that may go on, and the phrase would end it
@example(None, [(5, 6)], [(6,)], 0, 4)  # the phrase itself would be the end of what is banned
@pytest.mark.unchecked
def test_no_phrase_makes_what_is_banned(
    table_model: Models, where, banned, phrases, seed, size
) -> None:
    """But just below the length limit, where one of the two must give way."""
    assume(not any(contains(phrase, never) for phrase in phrases for never in banned))
    model, source = table_model(10, seed, end=1.0), [4, 5, 6]
    constraint = Constraint(phrases=tuple(phrases), banned=tuple(banned), joints=where)
    (found,) = beam(size, n_best=size, offset=14)(model, *batch(source), constraints=[constraint])
    for hypothesis in found:
        assert all(contains(hypothesis.tokens, phrase, where) for phrase in phrases)
        if len(hypothesis.tokens) < limit(source, 14):
            assert not any(contains(hypothesis.tokens, never, where) for never in banned)


@pytest.mark.parametrize(
    "phrases", [((5,),), ((4, 5),), ((4, 4, 5),), ((5, 6), (5,)), ((4,), (5,), (4, 5)), ((5, 5),)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("where", [None, joints(7)], ids=["anywhere", "words"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.unchecked
def test_a_wide_beam_finds_the_best_that_has_them(
    table_model: Models, phrases, where, seed: int
) -> None:
    """Of all strings of four words: a plain wide beam lists them, proven in test_beam.py."""
    model, source = table_model(7, seed, end=1.0), [4, 6]
    wide = beam(4000, n_best=4000, offset=4)
    (everything,) = wide(model, *batch(source))
    assert len(everything) == sum(4**n for n in range(6))
    fitting = [h for h in everything if all(contains(h.tokens, p, where) for p in phrases)]
    (found,) = wide(model, *batch(source), constraints=[Constraint(phrases=phrases, joints=where)])
    assert [h.tokens for h in found[:3]] == [h.tokens for h in fitting[:3]]
    assert found[0].score == pytest.approx(fitting[0].score, abs=1e-10)
    if len(phrases) == 1 and not where:  # several might overlap just below the length limit
        assert {h.tokens for h in found} == {h.tokens for h in fitting}


def test_nothing_constrained_is_plain_beam_search(table_model: Models) -> None:
    ids = [[4, 5], [6], [7, 8, 9]]
    for seed in range(10):
        model = table_model(10, seed, end=0.5)
        plain = beam(4, n_best=4)(model, *batch(*ids))
        beside = [Constraint(), Constraint(phrases=((4, 5),)), Constraint(phrases=((),))]
        found = beam(4, n_best=4)(model, *batch(*ids), constraints=beside)
        assert [h.tokens for h in found[0]] == [h.tokens for h in plain[0]]
        assert [h.tokens for h in found[2]] == [h.tokens for h in plain[2]]


@pytest.mark.unchecked
def test_taking_turns_finds_better_translations(table_model: Models, monkeypatch) -> None:
    """What has begun a phrase is not crowded out by what has not: Post and Vilar 2018."""
    asked = [Constraint(phrases=((4, 5), (6, 7)))]

    def mean() -> float:
        models = [table_model(10, seed, sharpness=2.0) for seed in range(12)]
        found = [beam(4)(model, *batch([4, 5, 6]), constraints=asked)[0][0] for model in models]
        return sum(hypothesis.log_prob for hypothesis in found) / len(found)

    in_turn = mean()
    monkeypatch.setattr(
        "translate.search.beam.in_turns", lambda totals, banks, count: totals.topk(count).indices
    )
    assert in_turn > mean() + 0.5


def slow_begun(history: Tokens, phrases: list[Tokens], where: Joints | None) -> list[int]:
    whole = [p for p in phrases if contains(history, p, where)]
    longer = (*history, 9)
    lost = [p for p in whole if not contains(longer, p, where)]
    found = []
    for p in phrases:
        sizes = range(len(p) - 1, 0, -1)
        begun = next((n for n in sizes if history[-n:] == p[:n]), 0)
        lose = sum(map(len, lost)) if where and where.onward[p[begun]] and p not in whole else 0
        found.append(len(p) if p in whole else begun if begun > lose else 0)
    return found


few = st.sampled_from([4, 5, 9])


@pytest.mark.parametrize("where", [None, joints(10)], ids=["anywhere", "words"])
@example([(4, [5]), (5, [9])], (4, 5))  # going on with one would lose more of another …
@example([(5, []), (5, [9])], (5,))  # … or as much
@given(
    st.lists(st.tuples(st.integers(4, 5), st.lists(few, max_size=3)), max_size=3),
    st.lists(few, max_size=7).map(tuple),
)
def test_progress_equals_its_slow_twin(where, parts, history) -> None:
    phrases = list(dict.fromkeys((first, *rest) for first, rest in parts))
    state = Phrases([Constraint(phrases=tuple(phrases), joints=where)], torch.tensor([9]))
    table = torch.tensor([history], dtype=torch.long).view(1, -1)
    begun, _ = state._begun(table, torch.tensor([0]))
    assert begun[0, : len(phrases)].tolist() == slow_begun(history, phrases, where)


def test_what_can_only_end_lacks_nothing() -> None:
    """There is no room to write the last word anew, should the next token go on with it."""
    state = Phrases([Constraint(phrases=((5,),), joints=joints(10))], torch.tensor([1]))
    log_probs = torch.arange(-10.0, 0.0)[None]
    at = Position(torch.tensor([0]), torch.tensor([[5]]), log_probs)
    going_on = Candidates(torch.tensor([[9]]), log_probs[:, 9:], log_probs[:, 9:])
    found, missing = state.candidates(going_on, at)
    assert (found.tokens == EOS).all()
    assert found.ranks.isfinite().sum() == 1
    assert not missing.any()


def test_no_translation_ends_without_a_phrase_where_the_rules_leave_only_the_end() -> None:
    state = Phrases([Constraint(phrases=((5, 6),))], torch.tensor([9]))
    log_probs = torch.arange(-10.0, 0.0)[None]
    at = Position(torch.tensor([0]), torch.tensor([[4]]), log_probs)
    only_the_end = Candidates(
        torch.tensor([[EOS]]), log_probs[:, EOS : EOS + 1], log_probs[:, EOS : EOS + 1]
    )
    found, missing = state.candidates(only_the_end, at)
    assert found.tokens[found.ranks.isfinite()].tolist() == [5]
    assert missing[found.ranks.isfinite()].tolist() == [1]


def test_banks_take_turns_and_leave_what_they_cannot_fill() -> None:
    totals = torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0, -torch.inf]])
    banks = torch.tensor([[2, 2, 2, 1, 1, 0]])
    assert in_turns(totals, banks, 4).tolist() == [[3, 0, 4, 1]]
    assert in_turns(totals, banks, 5).tolist() == [[3, 0, 4, 1, 2]]
    assert in_turns(totals, torch.zeros_like(banks), 3).tolist() == [[0, 1, 2]]
