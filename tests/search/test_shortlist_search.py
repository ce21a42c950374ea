"""A search among the candidates of each sentence: exact, and blind to what is beside it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import batch, joints
from torch import Tensor

from translate.extras.ensemble import Ensemble
from translate.extras.shortlist_search import Shortlist, Shortlisted, ShortlistSearch
from translate.models.seq2seq import Seq2Seq
from translate.search import Constraint, Hypothesis, Search, build
from translate.vocabulary import BOS, EOS, PAD, UNK

WORDS = 13
LIMITS = {"max_length_ratio": 0.5, "max_length_offset": 8}
BEAM = {
    "kind": "beam", "beam_size": 4, "length_penalty": "gnmt", "alpha": 0.8, "n_best": 2,
    "coverage_penalty": 0.2, **LIMITS,
}  # fmt: skip
SEARCHES: dict[str, Search] = {
    "greedy": build({"kind": "greedy", **LIMITS}),
    "beam": build(BEAM),
    "diverse": build(BEAM | {"kind": "diverse", "groups": 2, "diversity_strength": 0.5}),
    "sample": build({
        "kind": "sample", "n_best": 2, "temperature": 0.7, "top_k": 5, "top_p": 1.0, "min_p": 0.0,
        "typical_p": 1.0, "seed": 1, **LIMITS,
    }),
}  # fmt: skip
SENTENCES = st.lists(st.lists(st.integers(4, WORDS - 1), max_size=5), min_size=1, max_size=4)
TABLES = st.lists(
    st.lists(st.integers(0, WORDS - 1), min_size=2, max_size=2), min_size=WORDS, max_size=WORDS
)


def masked(model: Seq2Seq, candidates: set[int]) -> Seq2Seq:
    """The slow twin: the whole vocabulary, all but the candidates of one sentence at -inf."""
    twin = copy.copy(model)
    others = [piece for piece in range(WORDS) if piece not in candidates]

    def project(hidden: Tensor) -> Tensor:
        logits = model.project(hidden).clone()
        logits[..., others] = -math.inf
        return logits

    twin.project = project  # type: ignore[method-assign]
    return twin


def assert_equal(found: list[Hypothesis], expected: list[Hypothesis], tolerance: float) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=tolerance)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=tolerance)


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=15)
@given(sources=SENTENCES, table=TABLES, frequent=st.lists(st.integers(4, WORDS - 1), max_size=3))
@pytest.mark.unchecked
def test_each_sentence_is_searched_as_if_alone_among_its_candidates(
    table_model, kind: str, sources, table, frequent
) -> None:
    model, search = table_model(WORDS, 3, sharpness=2.0), SEARCHES[kind]
    shortlist = Shortlist(torch.tensor(frequent, dtype=torch.long), torch.tensor(table))
    found = ShortlistSearch(search, shortlist)(model, *batch(*sources), need_alignment=True)
    for source, n_best in zip(sources, found, strict=True):
        translations = {piece for token in [*source, EOS] for piece in table[token]}
        allowed = {PAD, UNK, BOS, EOS, *frequent, *translations}
        (expected,) = search(masked(model, allowed), *batch(source), need_alignment=True)
        assert_equal(n_best, expected, 1e-10)
        for one, other in zip(n_best, expected, strict=True):
            assert one.alignment is not None
            torch.testing.assert_close(one.alignment, other.alignment)


@pytest.mark.parametrize("kind", SEARCHES)
def test_the_whole_vocabulary_as_a_shortlist_changes_no_bit(table_model, kind: str) -> None:
    models = [table_model(WORDS, seed, sharpness=2.0) for seed in (3, 4)]
    whole = Shortlist(torch.arange(WORDS), torch.zeros(WORDS, 1, dtype=torch.long))
    source = batch([5, 6, 7, 8], [9], [4, 4, 10])
    for model in (models[0], Ensemble(models)):
        found = ShortlistSearch(SEARCHES[kind], whole)(model, *source)
        for n_best, expected in zip(found, SEARCHES[kind](model, *source), strict=True):
            assert_equal(n_best, expected, 0.0)


def test_an_ensemble_averages_probabilities_among_the_candidates(table_model) -> None:
    models, allowed = [table_model(WORDS, seed) for seed in (3, 4)], {*range(4), 7, 9}
    shortlist = Shortlist(torch.tensor([7, 9]), torch.zeros(WORDS, 1, dtype=torch.long))
    found = ShortlistSearch(SEARCHES["beam"], shortlist)(Ensemble(models), *batch([5], [6, 8]))
    twin = Ensemble([masked(model, allowed) for model in models])
    for n_best, expected in zip(found, SEARCHES["beam"](twin, *batch([5], [6, 8])), strict=True):
        assert_equal(n_best, expected, 1e-10)


def test_constraints_may_be_written_and_what_is_banned_may_not(table_model) -> None:
    shortlist = Shortlist(torch.tensor([7]), torch.zeros(WORDS, 1, dtype=torch.long))
    search = ShortlistSearch(SEARCHES["beam"], shortlist)
    constraints = [
        Constraint(prefix=(10,), phrases=((11, 12),)),
        Constraint(banned=((7,), (8, 9))),  # 8 and 9 are nobody's candidates
        Constraint(),
    ]
    given, banned, free = search(
        table_model(WORDS, 3), *batch([5], [5], [5]), constraints=constraints
    )
    assert all(one.tokens[0] == 10 for one in given)
    assert all((11, 12) in zip(one.tokens, one.tokens[1:], strict=False) for one in given)
    assert all(set(one.tokens) <= {UNK} for one in banned)
    assert all(set(one.tokens) <= {UNK, 7} for one in free)
    assert any(7 in one.tokens for one in free)


def test_a_banned_word_may_go_on_where_a_candidate_of_the_sentence_goes_on(table_model) -> None:
    """Whatever the candidates of the sentences beside it."""
    likeliest = torch.zeros(WORDS, 1, dtype=torch.long)
    likeliest[6] = WORDS - 1  # goes on, and no other does
    search = ShortlistSearch(SEARCHES["beam"], Shortlist(torch.tensor([5, 7]), likeliest))
    constraint = Constraint(banned=((5,),), joints=joints(WORDS))
    model, both = table_model(WORDS, 8), [[4], [6]]
    together = search(model, *batch(*both), constraints=[constraint] * 2)
    for source, n_best in zip(both, together, strict=True):
        assert_equal(n_best, search(model, *batch(source), constraints=[constraint])[0], 1e-10)
    assert not any(5 in one.tokens for one in together[0])
    assert any(5 in one.tokens for one in together[1])
    for one in together[1]:
        after = zip(one.tokens, (*one.tokens[1:], EOS), strict=True)
        assert {b for a, b in after if a == 5} <= {WORDS - 1}


def test_steps_select_and_keep_equal_the_whole_target(table_model) -> None:
    model = table_model(WORDS, 3)
    pieces = torch.tensor([0, 1, 2, 3, 7, 9])
    barred = torch.tensor([[False] * 6, [False] * 4 + [True, False]])
    small = Shortlisted(model, pieces, barred)
    source, target = batch([5], [6, 8]), torch.tensor([[BOS, 4, 5], [BOS, 5, 1]])
    memory = small.encode(*source)
    whole = small.decode(target, memory).hidden
    assert whole[1, :, 4].isneginf().all()
    state = small.start(memory).keep(torch.tensor([1, 0])).select(torch.tensor([0, 0, 1, 1]))
    for t in range(3):
        step = small.decode_step(target[[1, 1, 0, 0], t], state)
        state = step.state
        torch.testing.assert_close(small.project(step.hidden), whole[[1, 1, 0, 0], t])
