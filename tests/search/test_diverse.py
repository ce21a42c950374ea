from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import PENALTIES, batch, choices, limit, settled

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.search import DiverseBeamSearch, build
from translate.vocabulary import EOS

Models = Callable[..., Seq2Seq]
OPTIONS = {
    "length_penalty": "gnmt", "alpha": 0.8, "coverage_penalty": 0.0, "max_length_ratio": 0.5,
    "max_length_offset": 6,
}  # fmt: skip


def diverse(beam_size: int, groups: int, strength: float, n_best: int) -> DiverseBeamSearch:
    return build(
        {
            "kind": "diverse",
            "beam_size": beam_size,
            "groups": groups,
            "diversity_strength": strength,
            "n_best": n_best,
            **OPTIONS,
        }
    )


def slow_diverse(
    model: Seq2Seq, source: list[int], size: int, groups: int, strength: float, n_best: int
) -> Any:
    """Algorithm 1 of the paper: group after group at each step, each as `slow_beam` goes on.

    A group drops what cannot enter its best any more, so that no later group need avoid it.
    """
    width, most, penalty = size // groups, limit(source, 6), PENALTIES["gnmt"]
    kept = min(n_best, width)
    open_ones: list[list[Any]] = [[((), 0.0)] for _ in range(groups)]
    finished: list[list[Any]] = [[] for _ in range(groups)]
    for length in range(most + 1):
        taken: list[int] = []
        for group in range(groups):
            places = width - len(finished[group])
            extensions = [
                ((*tokens, token), total + rank, total + rank - strength * taken.count(token))
                for tokens, total in open_ones[group]
                for token, rank in choices(
                    model, source, tokens, lambda prefix, ranks: ranks, end=length == most
                )
            ]
            extensions.sort(key=lambda extension: -extension[2])
            chosen = extensions[:places]
            taken += [tokens[-1] for tokens, _, _ in chosen]
            open_ones[group] = [(y, total) for y, total, _ in chosen if y[-1] != EOS]
            ended = [(y[:-1], total) for y, total, _ in chosen if y[-1] == EOS]
            finished[group] += [(y, total / penalty(length + 1)) for y, total in ended]
            finished[group].sort(key=lambda found: -found[1])
            open_ones[group] = [
                one
                for one in open_ones[group]
                if not settled([one], finished[group][:kept], penalty(most + 1), kept)
            ]
    best = sorted((one for some in finished for one in some), key=lambda found: -found[1])
    return list(dict(best).items())[:n_best]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(4, 9), max_size=5), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from([(2, 2), (4, 2), (6, 3), (3, 1)]),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([-1.0, 1.0, 3.0]),
    st.data(),
)
def test_equals_the_slow_twin(table_model: Models, ids, seed, shape, strength, end, data) -> None:
    model = table_model(10, seed, end=end)
    n_best = data.draw(st.integers(1, shape[0]), label="n_best")
    found = diverse(*shape, strength, n_best)(model, *batch(*ids))
    for sentence, hypotheses in zip(ids, found, strict=True):
        expected = slow_diverse(model, sentence, *shape, strength, n_best)
        assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in expected]
        scores = [h.score for h in hypotheses]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-10)


@pytest.mark.parametrize("n_best", [1, 4])
def test_one_group_is_beam_search(table_model: Models, n_best: int) -> None:
    plain = build({"kind": "beam", "beam_size": 4, "n_best": n_best, **OPTIONS})
    for seed in range(10):
        model, ids = table_model(10, seed, end=0.5), [[4, 5, 6], [], [7]]
        assert diverse(4, 1, 5.0, n_best)(model, *batch(*ids)) == plain(model, *batch(*ids))


def test_strength_makes_first_words_differ(table_model: Models) -> None:
    for seed in range(10):
        model = table_model(20, seed, end=-1.0)
        (found,) = diverse(3, 3, 100.0, 3)(model, *batch([4, 5, 6]))
        assert len({(*h.tokens, EOS)[0] for h in found}) == 3


def test_shapes_that_do_not_fit_are_refused() -> None:
    uneven, short = (
        "search.beam_size = 5 is not a multiple of search.groups = 2",
        "search.n_best = 5",
    )
    for shape, told in (((5, 2, 1.0, 1), uneven), ((4, 2, 1.0, 5), short)):
        with pytest.raises(UserError, match=told):
            diverse(*shape)
