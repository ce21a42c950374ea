"""A search whose numbers come a step late, as from a GPU, is the same search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_twins import batch, nodes

from translate import search
from translate.models.seq2seq import Seq2Seq
from translate.search import hypothesis
from translate.search.hypothesis import Counts

KINDS = nodes(0.5, 8)


class Event:
    """In place of CUDA's: what was copied before it is there once it is waited for."""

    waited = 0

    def synchronize(self) -> None:
        Event.waited += 1


@pytest.fixture(scope="module")
def late() -> Iterator[Callable[[], object]]:
    """A CPU whose numbers are read as a GPU's are."""
    with mock.patch.object(hypothesis, "reached", return_value=Event()):
        yield lambda: mock.patch.object(hypothesis, "LATE", {"cpu"})


def steps(model: Seq2Seq) -> mock._patch:
    return mock.patch.object(model, "decode_step", wraps=model.decode_step)


@settings(max_examples=12)
@given(
    st.lists(st.lists(st.integers(4, 9), max_size=5), min_size=1, max_size=9),
    st.integers(0, 10**6),
    st.sampled_from([-1.0, 1.0, 3.0]),
)
@example([[4], [5], [6], [7]], 0, 1.0)  # a greedy batch whose last end together after another
@example([[4], [5], [6], [7]], 3, 1.0)  # the same of samples
@pytest.mark.parametrize("kind", search.KINDS)
@pytest.mark.unchecked
def test_reading_late_changes_no_hypothesis_and_adds_one_step_at_most(
    table_model, late, kind, ids, seed, end
) -> None:
    model = table_model(10, seed, sharpness=2.0, end=end)
    finder = search.build({"kind": kind, **KINDS[kind]})
    with steps(model) as taken:
        expected = finder(model, *batch(*ids))
    before, Event.waited = taken.call_count, 0
    with steps(model) as taken, late():
        assert finder(model, *batch(*ids)) == expected
    assert before <= taken.call_count <= before + 1
    assert Event.waited < taken.call_count  # of the first nothing is known


def test_a_number_is_that_of_the_step_before(late) -> None:
    with late():
        found = Counts(torch.device("cpu"))
        assert found.read(torch.tensor([3, 0, 2])) is None
        assert found.read(torch.tensor([2, 0, 1])) == [3, 0, 2]
        found.keep([0, 2])
        assert found.read(torch.tensor([1, 0])) == [2, 1]
        assert found.read(torch.tensor([0, 0])) == [1, 0]
    assert Counts(torch.device("cpu")).read(torch.tensor([3, 2])) == [3, 2]


@pytest.mark.parametrize(("wanted", "read"), [(1, 4), (16, 16), (17, 32), (24, 32), (33, 48)])
def test_rows_are_read_in_few_different_numbers(wanted: int, read: int, late) -> None:
    """Those that are wanted, in order, and as few others as make the number a round one."""
    rows = torch.zeros(60, dtype=torch.bool)
    rows[torch.randperm(60)[:wanted]] = True
    found = Counts(rows.device).rows_to_compute(rows)
    assert len(found) == len(set(found.tolist())) == read
    assert set(rows.nonzero()[:, 0].tolist()) <= set(found.tolist())
    assert found.tolist() == sorted(found)
    with late():  # a GPU would have to be waited for
        assert Counts(rows.device).rows_to_compute(rows) is None


def test_all_rows_are_read_where_no_round_number_is_fewer() -> None:
    found = Counts(torch.device("cpu"))
    assert found.rows_to_compute(torch.tensor([True, False, True, True])) is None
    assert found.rows_to_compute(torch.arange(18) < 17) is None
