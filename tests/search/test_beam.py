from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import PENALTIES, batch, limit, rescored, slow_beam, uncovered

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search import BeamConfig, BeamSearch, GreedyConfig, GreedySearch, Hypothesis
from translate.vocabulary import BOS, EOS, PAD

Models = Callable[..., Seq2Seq]
GREEDY = GreedySearch(GreedyConfig(kind="greedy", max_length_ratio=0.5, max_length_offset=8))


def beam(
    size: int, *, penalty: str = "gnmt", beta: float = 0.0, n_best: int = 1, offset: int = 8
) -> BeamSearch:
    return BeamSearch(BeamConfig(kind="beam",
        beam_size=size, length_penalty=penalty, alpha=0.8, coverage_penalty=beta, n_best=n_best,
        max_length_ratio=0.5, max_length_offset=offset,
    ))  # fmt: skip


def assert_same(found: list[Hypothesis], expected: list[tuple[tuple[int, ...], float]]) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _ in expected]
    scores = [hypothesis.score for hypothesis in found]
    assert scores == pytest.approx([score for _, score in expected], abs=1e-10)


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return low


sentences = st.lists(st.lists(st.integers(4, 9), max_size=5), min_size=1, max_size=4)


@pytest.mark.parametrize("search", [GREEDY, beam(3)], ids=["greedy", "beam"])
def test_finished_sentences_that_stay_in_a_large_batch_change_nothing(
    table_model: Models, search: GreedySearch | BeamSearch
) -> None:
    """They leave together, when a quarter has finished; until then they write on, unheard."""
    model = table_model(10, 3, sharpness=2.0, end=1.5)
    ids = [[4 + i % 6, 4 + i // 6, 9] for i in range(36)]
    together = search(model, *batch(*ids))
    alone = [search(model, *batch(sentence))[0] for sentence in ids]
    assert len({len(best.tokens) for best, *_ in alone}) > 3
    for found, expected in zip(together, alone, strict=True):
        assert_same(found, [(hypothesis.tokens, hypothesis.score) for hypothesis in expected])


@settings(max_examples=25)
@given(
    sentences,
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.sampled_from(list(PENALTIES)),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([-1.0, 1.0, 3.0]),
    st.sampled_from([0.0, 0.2, 2.0]),
    st.data(),
)
@pytest.mark.unchecked
def test_equals_the_slow_twin_which_never_stops_early(
    table_model: Models, ids, seed, size, penalty, sharpness, end, beta, data
) -> None:
    n_best = data.draw(st.integers(1, size))
    model = table_model(10, seed, sharpness=sharpness, end=end)
    search = beam(size, penalty=penalty, beta=beta, n_best=n_best, offset=6)
    for sentence, hypotheses in zip(ids, search(model, *batch(*ids)), strict=True):
        assert_same(hypotheses, slow_beam(model, sentence, size, penalty, n_best, 6, beta)[0])


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("n_best", [1, 50])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_wide_beam_on_four_words_is_exhaustive(
    table_model: Models, penalty: str, n_best: int, beta: float
) -> None:
    model, source = table_model(7, seed=5), [4, 6]  # <unk> and three words
    words = [1, 4, 5, 6]
    strings = [s for n in range(limit(source, 2) + 1) for s in itertools.product(words, repeat=n)]
    scored = []
    for string in strings:
        log_prob = math.fsum(rescored(model, source, string))
        score = log_prob / PENALTIES[penalty](len(string) + 1)
        scored.append((string, score + beta * uncovered(model, source, string)))
    best = sorted(scored, key=lambda found: -found[1])[:n_best]
    search = beam(200, penalty=penalty, beta=beta, n_best=n_best, offset=2)
    (found,) = search(model, *batch(source))
    assert_same(found, best)


@settings(max_examples=25)
@given(sentences, st.integers(0, 10**6), st.sampled_from(list(PENALTIES)))
def test_a_beam_of_one_is_greedy(table_model: Models, ids, seed, penalty) -> None:
    model = table_model(10, seed)
    greedy = GREEDY(model, *batch(*ids))
    found = beam(1, penalty=penalty)(model, *batch(*ids))
    for (one,), (other,) in zip(greedy, found, strict=True):
        assert one.tokens == other.tokens
        assert one.finished == other.finished
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-12)
        assert one.score == one.log_prob


@pytest.mark.parametrize("penalty", PENALTIES)
def test_log_probs_are_those_of_teacher_forcing(table_model: Models, penalty: str) -> None:
    model, ids = table_model(10, seed=3), [[4, 5, 6], [7], [], [9, 9, 9, 9]]
    found = beam(4, penalty=penalty, n_best=4)(model, *batch(*ids))
    for sentence, hypotheses in zip(ids, found, strict=True):
        for hypothesis in hypotheses:
            expected = rescored(model, sentence, hypothesis.tokens)
            assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-10)
            assert hypothesis.log_prob == pytest.approx(math.fsum(expected), abs=1e-10)
            length = len(expected)
            assert hypothesis.score == hypothesis.log_prob / PENALTIES[penalty](length)


def test_n_best_is_sorted_unique_and_within_the_limits(table_model: Models) -> None:
    model, ids = table_model(12, seed=8, end=-1.0), [[4] * n for n in (0, 1, 5, 9)]
    found = beam(6, n_best=6)(model, *batch(*ids))
    for sentence, hypotheses in zip(ids, found, strict=True):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == 6
        for hypothesis in hypotheses:
            assert not {PAD, BOS, EOS} & set(hypothesis.tokens)
            assert len(hypothesis.tokens) <= limit(sentence)
            assert hypothesis.finished == (len(hypothesis.tokens) < limit(sentence))


@pytest.mark.parametrize("end", [-1e4, 1e4])
def test_a_hypothesis_the_limit_has_ended_says_so(table_model: Models, end: float) -> None:
    model = table_model(10, seed=1, end=end)
    (found,) = beam(3, n_best=3)(model, *batch([4, 5]))
    if end < 0:
        assert [len(hypothesis.tokens) for hypothesis in found] == [9, 9, 9]
        assert not any(hypothesis.finished for hypothesis in found)
        assert found[0].token_log_probs[-1] < -1e3  # its </s> is paid for
    else:
        assert found[0].tokens == ()
        assert found[0].finished


@settings(max_examples=20)
@given(st.permutations(range(5)), st.integers(1, 5), st.integers(0, 10**6))
@pytest.mark.unchecked
def test_the_batch_never_changes_a_translation(table_model: Models, order, size, seed) -> None:
    ids = [[4], [5, 6, 7], [], [8, 8, 8, 8, 8, 8], [9, 4]]
    model, search = table_model(10, seed), beam(4, beta=0.5, n_best=2)
    alone = [search(model, *batch(sentence), need_alignment=True)[0] for sentence in ids]
    for start in range(0, 5, size):
        members = order[start : start + size]
        together = search(model, *batch(*(ids[i] for i in members)), need_alignment=True)
        for i, found in zip(members, together, strict=True):
            assert [h.tokens for h in found] == [h.tokens for h in alone[i]]
            for one, other in zip(found, alone[i], strict=True):
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)
                assert one.score == pytest.approx(other.score, abs=1e-10)
                torch.testing.assert_close(one.alignment, other.alignment)


@pytest.mark.parametrize("search", [beam(4, n_best=4), beam(4, beta=0.3, n_best=4), GREEDY])
def test_alignments_follow_their_hypothesis(table_model: Models, search) -> None:
    model, ids = table_model(10, seed=2), [[4, 5, 6, 7], [8]]
    found = search(model, *batch(*ids), need_alignment=True)
    for sentence, hypotheses in zip(ids, found, strict=True):
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS, *hypothesis.tokens]])
            memory = model.encode(*batch(sentence))
            forced = model.decode(target, memory, need_alignment=True).alignment
            torch.testing.assert_close(hypothesis.alignment, forced[0])
    assert search(model, *batch(*ids))[0][0].alignment is None


@pytest.fixture
def rows(table_model: Models, monkeypatch) -> list[int]:
    """How many hypotheses each step of a table model is given."""
    counted: list[int] = []
    model = type(table_model(5, seed=0))
    step = model.decode_step

    def decode_step(self, tokens, state, **options):
        counted.append(len(tokens))
        return step(self, tokens, state, **options)

    monkeypatch.setattr(model, "decode_step", decode_step)
    return counted


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(("size", "n_best"), [(1, 1), (4, 1), (4, 3)])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.unchecked
def test_stops_as_soon_as_it_safely_can_and_no_sooner(
    table_model: Models, rows: list[int], penalty: str, size: int, n_best: int, beta: float
) -> None:
    early = 0
    for seed in range(12):
        model = table_model(10, seed, sharpness=2.0, end=1.0)
        expected, steps = slow_beam(model, [4, 5], size, penalty, n_best, 4, beta)
        rows.clear()
        search = beam(size, penalty=penalty, beta=beta, n_best=n_best, offset=4)
        (found,) = search(model, *batch([4, 5]))
        assert_same(found, expected)
        assert len(rows) == steps
        early += steps < limit([4, 5], 4) + 1
    assert early


@pytest.mark.parametrize("most", range(2, 8))  # float32 rounds their penalties up and down
def test_a_hypothesis_is_not_given_up_for_what_rounding_takes_from_its_bound(
    table_model: Models, monkeypatch, most: int
) -> None:
    """After its first token nothing costs it anything, and at the limit it is best by a hair."""
    hair, longest = 1 - 1e-9, PENALTIES["gnmt"](most + 1)

    def excess(score: float) -> float:
        return math.exp(score) + math.exp(longest * score * hair) - 1

    score = bisect(excess, -1.0, 0.0)  # of </s> alone, which shares its chance with the token 5
    model, steps = table_model(6, seed=0), itertools.count()
    step = model.decode_step

    def decode_step(tokens, state, **options):
        logits = torch.full((len(tokens), 6), -1000.0, dtype=torch.float64)
        if (length := next(steps)) == 0:
            logits[:, EOS], logits[:, 5] = score, longest * score * hair
        else:
            logits[:, EOS if length == most else 5] = 0.0
        return step(tokens, state, **options)._replace(hidden=logits)

    monkeypatch.setattr(model, "decode_step", decode_step)
    ((found,),) = beam(2, penalty="gnmt", offset=most)(model, *batch([]))
    assert found.tokens == (5,) * most
    assert found.score == pytest.approx(score * hair, rel=1e-12)


@pytest.mark.parametrize("search", [GREEDY, beam(4)], ids=["greedy", "beam"])
def test_only_open_hypotheses_are_read_and_meet_the_vocabulary(
    table_model: Models, search: GreedySearch | BeamSearch
) -> None:
    """A hypothesis in the place of one that has ended would cost as much as an open one."""
    model, projected, read, places = table_model(10, 3, sharpness=2.0, end=1.5), [], [], []
    project, decode_step = model.project, model.decode_step

    def step(tokens, state, **more):
        read.append(len(tokens))
        places.append(len(state.prefixes))
        return decode_step(tokens, state, **more)

    ids = [[4 + i % 6, 4 + i // 6 % 6, 4 + i // 36] for i in range(216)]
    model.project = lambda hidden: projected.append(len(hidden)) or project(hidden)
    model.decode_step = step
    search(model, *batch(*ids))
    assert projected == read
    assert read[0] == len(ids)
    assert all(r <= p for r, p in zip(read, places, strict=True))
    assert sum(read) < sum(places)


def test_the_coverage_penalty_prefers_what_forgets_no_word(table_model: Models) -> None:
    """A strong penalty gives, of everything the beam finds, the most covering translation."""
    changed = 0
    for seed in range(10):
        model, source = table_model(10, seed, end=1.0), [4, 5, 6, 7]
        (plain,) = beam(6, n_best=6)(model, *batch(source))
        (strict,) = beam(6, beta=1e6, n_best=1)(model, *batch(source))
        assert uncovered(model, source, strict[0].tokens) == pytest.approx(
            max(uncovered(model, source, found.tokens) for found in plain)
        )
        changed += strict[0].tokens != plain[0].tokens
    assert changed


def test_coverage_is_summed_in_float32_at_least(table_model: Models, monkeypatch) -> None:
    model, source = table_model(10, seed=3, end=1.0), batch([4, 5, 6, 7])
    step = type(model).decode_step

    def scores(dtype: torch.dtype) -> list[float]:
        def decode_step(self, tokens, state, **options):
            made = step(self, tokens, state, **options)
            return made._replace(alignment=made.alignment.bfloat16().to(dtype))

        monkeypatch.setattr(type(model), "decode_step", decode_step)
        (found,) = beam(4, beta=0.5, n_best=4)(model, *source)
        return [hypothesis.score for hypothesis in found]

    assert scores(torch.bfloat16) == scores(torch.float32)


@pytest.mark.parametrize(("beta", "need_alignment"), [(0.0, False), (0.1, True)])
def test_the_alignment_is_computed_only_where_it_counts(
    table_model: Models, monkeypatch, beta: float, need_alignment: bool
) -> None:
    model = table_model(10, seed=1)
    asked: list[bool] = []
    step = type(model).decode_step

    def decode_step(self, tokens, state, *, need_alignment, **more):
        asked.append(need_alignment)
        return step(self, tokens, state, need_alignment=need_alignment, **more)

    monkeypatch.setattr(type(model), "decode_step", decode_step)
    (found,) = beam(2, beta=beta)(model, *batch([4, 5]))
    assert set(asked) == {need_alignment}
    assert found[0].alignment is None


def test_a_coverage_penalty_without_attention_is_refused(table_model: Models, monkeypatch) -> None:
    model = table_model(10, seed=1)
    step = type(model).decode_step
    monkeypatch.setattr(type(model), "decode_step", lambda self, *args, **_: step(self, *args))
    with pytest.raises(UserError, match=r"search.coverage_penalty = 0.2 .* has no attention"):
        beam(2, beta=0.2)(model, *batch([4]))


@pytest.mark.parametrize("search", [beam(4), GREEDY])
def test_a_model_of_nan_is_an_error_not_an_empty_line(table_model: Models, search) -> None:
    model = table_model(10, seed=1)
    model.table.fill_(math.nan)
    with pytest.raises(UserError, match="not finite"):
        search(model, *batch([4], [5]))


def test_one_hypothesis_of_nan_is_an_error_too(table_model: Models, monkeypatch) -> None:
    """It would rank above all, and what it displaced be lost without a word."""
    model = table_model(10, seed=1, end=1.0)
    (found,) = beam(3, n_best=3)(model, *batch([4]))
    first = next(one.tokens[0] for one in found[1:] if one.tokens)
    step = model.decode_step

    def broken(tokens: torch.Tensor, *state, **options):
        taken = step(tokens, *state, **options)
        hidden = taken.hidden.masked_fill((tokens == first)[:, None], math.nan)
        return taken._replace(hidden=hidden)

    monkeypatch.setattr(model, "decode_step", broken)
    with pytest.raises(UserError, match="not finite"):
        beam(3, n_best=3)(model, *batch([4]))
