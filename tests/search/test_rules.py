from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import batch, joints, limit, log_probs_along, rescored, slow_beam

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search import Constraint, RulesConfig, SampleSearch, build
from translate.search.constraints import NO_RULES
from translate.vocabulary import EOS

Models = Callable[..., Seq2Seq]
Tokens = tuple[int, ...]
LIMITS = {"max_length_ratio": 0.5, "max_length_offset": 6}
BEAM = {"length_penalty": "gnmt", "alpha": 0.8, "coverage_penalty": 0.0}


def rules(**changes: Any) -> dict[str, Any]:
    return NO_RULES.model_dump() | changes


def follows_a_letter(text: Tokens, phrase: Tokens, constraint: Constraint) -> bool:
    before = text[: -len(phrase)]
    return bool(constraint.joints and before and constraint.joints.open[before[-1]])


def slow_rule(changes: dict[str, Any], constraint: Constraint, most: int, *, alone: bool):
    """Every rule, spelled out for one prefix; what is forbidden has rank -inf."""
    most = max(most, len(constraint.prefix))

    def ranks(prefix: Tokens, log_probs: list[float]) -> list[float]:
        if len(prefix) < len(constraint.prefix):
            given = constraint.prefix[len(prefix)]
            return [log_prob if t == given else -math.inf for t, log_prob in enumerate(log_probs)]
        found = []
        for token, log_prob in enumerate(log_probs):
            text, rank = (*prefix, token), log_prob
            if token in prefix:
                rank *= changes.get("repetition_penalty", 1.0)
            if token == EOS and len(prefix) < changes.get("min_length", 0):
                rank = -math.inf
            n = changes.get("no_repeat_ngram_size", 0)
            if (
                n
                and len(text) > n
                and text[-n:] in [prefix[i : i + n] for i in range(len(prefix) - n + 1)]
            ):
                rank = -math.inf
            for phrase in (*constraint.banned, *constraint.glued):
                glued = phrase not in constraint.banned
                # a longer word may begin with it, if there is room for one and another way to go
                where = None if alone else constraint.joints
                beginning = where is not None and where.open[phrase[-1]]
                written = prefix[-len(phrase) :] == phrase and len(prefix) > len(constraint.prefix)
                written &= not (glued and follows_a_letter(prefix, phrase, constraint))
                if beginning and written and not where.onward[token]:
                    rank = -math.inf
                ended = text[-len(phrase) :] == phrase
                ended &= not (glued and follows_a_letter(text, phrase, constraint))
                if ended and not (beginning and len(text) < most):
                    rank = -math.inf
            found.append(rank)
        return found

    return ranks


CHANGES = [
    {"min_length": 4},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.7},
    {"min_length": 3, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2},
]
tokens = st.integers(4, 7)  # of which 7 may go on with a word, and 5 and 7 end with a letter
phrases = st.lists(st.lists(tokens, min_size=1, max_size=3).map(tuple), max_size=3)
asked = st.tuples(st.lists(tokens, max_size=4), phrases, phrases)  # prefix, banned and glued


@settings(max_examples=12)
@given(
    st.sampled_from([None, joints(8)]),
    st.lists(asked, min_size=3, max_size=3),
    st.integers(0, 10**6),
    st.integers(1, 4),
)
@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: "-".join(changes))
@pytest.mark.unchecked
def test_a_beam_under_rules_equals_the_slow_twin(
    table_model: Models, changes, where, wanted, seed, size
) -> None:
    constrained = [
        Constraint(prefix=tuple(y), banned=tuple(never), glued=tuple(glued), joints=where)
        for y, never, glued in wanted
    ]
    model, ids = table_model(8, seed, sharpness=2.0, end=0.5), [[4, 5], [], [6, 7, 4]]
    node = {"kind": "beam", "beam_size": size, "n_best": size, **BEAM, **LIMITS}
    search = build({**node, "rules": rules(**changes)})
    found = search(model, *batch(*ids), constraints=constrained)
    for sentence, constraint, hypotheses in zip(ids, constrained, found, strict=True):
        rule = slow_rule(changes, constraint, limit(sentence, 6), alone=size == 1)
        expected, _ = slow_beam(model, sentence, size, "gnmt", size, 6, rule=rule)
        assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in expected]
        scores = [h.score for h in hypotheses]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-10)
        for hypothesis in hypotheses:  # the model's own, whatever the rules
            own = rescored(model, sentence, hypothesis.tokens)
            assert hypothesis.token_log_probs == pytest.approx(own, abs=1e-10)


NODES = {
    "greedy": {},
    "beam": {"beam_size": 4, "n_best": 4, **BEAM},
    "diverse": {"beam_size": 4, "n_best": 4, "groups": 2, "diversity_strength": 0.5, **BEAM},
    "sample": {
        "n_best": 4, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0,
        "seed": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("where", [None, joints(12)], ids=["anywhere", "words"])
@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: "-".join(changes))
@pytest.mark.unchecked
def test_every_search_keeps_the_rules(table_model: Models, kind: str, changes, where) -> None:
    constraint = Constraint(
        prefix=(5,), banned=((6,), (4, 7), (9,)), glued=((8,), (4, 4)), joints=where
    )
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules(**changes)})
    for seed in range(5):
        model = table_model(12, seed, end=0.5)
        (found,) = search(model, *batch([4, 5]), constraints=[constraint])
        for hypothesis in found:
            rule = slow_rule(
                changes, constraint, limit([4, 5], 6), alone=kind in ("greedy", "sample")
            )
            along = log_probs_along(model, [4, 5], hypothesis.tokens)
            for t, token in enumerate((*hypothesis.tokens, EOS)):
                ranks = rule(hypothesis.tokens[:t], along[t])
                stuck = max(ranks) == -math.inf  # by no rule with a vocabulary of thousands
                cut_off = t == len(hypothesis.tokens) and not hypothesis.finished
                assert ranks[token] > -math.inf or stuck or cut_off


@pytest.mark.parametrize("kind", ["greedy", "sample"])
def test_a_hypothesis_alone_begins_no_word_with_a_banned_one(table_model: Models, kind) -> None:
    """It would have to go on with it, however unlikely the longer word is."""
    constraint = Constraint(banned=((9,),), joints=joints(12))
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules()})
    found = [
        search(table_model(12, s, end=0.5), *batch([4]), constraints=[constraint]) for s in range(5)
    ]
    assert not any(9 in one.tokens for (n_best,) in found for one in n_best)
    free = [search(table_model(12, s, end=0.5), *batch([4])) for s in range(5)]
    assert any(9 in one.tokens for (n_best,) in free for one in n_best)


@pytest.mark.parametrize("kind", NODES)
def test_no_search_writes_more_than_the_model_reads(table_model: Models, kind: str) -> None:
    model = table_model(12, 1, end=-9.0)
    model.max_length = 5
    (found,) = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules()})(
        model, *batch([4, 5])
    )
    assert all(len(hypothesis.tokens) == 4 for hypothesis in found)  # and <s>


@pytest.mark.parametrize("kind", ["greedy", "sample", "diverse"])
def test_phrases_are_left_to_beam_search(table_model: Models, kind: str) -> None:
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules()})
    with pytest.raises(UserError, match=rf"search.kind = {kind} .* use search=beam"):
        search(table_model(12, 1), *batch([4, 5]), constraints=[Constraint(phrases=((5,),))])


@pytest.mark.parametrize("kind", NODES)
def test_log_probs_are_the_model_s_own_and_it_always_ends(table_model: Models, kind: str) -> None:
    strict = rules(min_length=5, no_repeat_ngram_size=1, repetition_penalty=3.0)
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": strict})
    ids = [[4, 5], [], [6, 4, 4, 4]]
    everything = Constraint(banned=tuple((token,) for token in range(8)))
    constrained = [everything, Constraint(prefix=(4, 4, 4, 4, 4, 4, 4, 4, 4)), Constraint()]
    for seed in range(5):
        model = table_model(8, seed, end=-1.0)
        found = search(model, *batch(*ids), constraints=constrained)
        assert found[0][0].tokens == ()  # nothing else is left
        assert all(h.tokens == (4,) * 9 for h in found[1])  # over its limit of 6
        for sentence, hypotheses in zip(ids, found, strict=True):
            for hypothesis in hypotheses:
                own = rescored(model, sentence, hypothesis.tokens)
                assert hypothesis.token_log_probs == pytest.approx(own, abs=1e-10)
                assert hypothesis.log_prob == pytest.approx(math.fsum(own), abs=1e-10)


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.unchecked
def test_the_batch_never_changes_what_a_search_finds(table_model: Models, kind: str) -> None:
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules(no_repeat_ngram_size=2)})
    ids = [[4], [5, 6, 7], [], [8, 8, 8, 8, 8, 8], [9, 4]]
    asked = [
        Constraint(prefix=(4,)),
        Constraint(),
        Constraint(banned=((5, 6),)),
        Constraint(),
        Constraint(prefix=(9, 9)),
    ]
    for seed in range(6):
        model = table_model(10, seed)
        alone = [
            search(model, *batch(i), constraints=[d])[0] for i, d in zip(ids, asked, strict=True)
        ]
        for order in ([0, 1, 2, 3, 4], [4, 2, 0], [3, 1]):
            together = search(
                model, *batch(*(ids[i] for i in order)), constraints=[asked[i] for i in order]
            )
            for i, found in zip(order, together, strict=True):
                assert [h.tokens for h in found] == [h.tokens for h in alone[i]]
                for one, other in zip(found, alone[i], strict=True):
                    assert one.score == pytest.approx(other.score, abs=1e-10)


@pytest.mark.parametrize("kind", NODES)
def test_scores_are_sorted_and_but_for_samples_unique(table_model: Models, kind: str) -> None:
    search = build({"kind": kind, **NODES[kind], **LIMITS, "rules": rules()})
    assert isinstance(search, SampleSearch) == (kind == "sample")
    for seed in range(10):
        for found in search(table_model(8, seed, end=1.0), *batch([4], [5, 6])):
            scores = [h.score for h in found]
            assert scores == sorted(scores, reverse=True)
            assert kind == "sample" or len({h.tokens for h in found}) == len(found)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((0, 0), 0), ((3, 0), 3), ((0, 3), 3), ((3, 2), 2), ((2, 3), 2)]
)
def test_stricter_takes_the_stricter_of_each_but_what_is_banned(
    sizes: tuple[int, int], expected: int
) -> None:
    one = RulesConfig(
        min_length=2, no_repeat_ngram_size=sizes[0], repetition_penalty=1.5, banned=("a",)
    )
    other = RulesConfig(
        min_length=4, no_repeat_ngram_size=sizes[1], repetition_penalty=1.2, banned=()
    )
    wanted = {"min_length": 4, "no_repeat_ngram_size": expected, "repetition_penalty": 1.5}
    assert one.stricter(other).model_dump() == {**wanted, "banned": ("a",)}
    assert other.stricter(one).model_dump() == {**wanted, "banned": ()}
