"""Steps that keep their shapes, as a GPU repeats them, find what other steps find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import jaxtyping
import pytest
import torch
from slow_twins import nodes
from small_models import REMEMBERING, sentences
from torch import Tensor

from translate import search
from translate.attention.cache import Ancestry
from translate.extras.ensemble import Ensemble
from translate.extras.shortlist_search import Shortlist, ShortlistSearch
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.search import cuda_graph, hypothesis
from translate.search.hypothesis import Hypothesis, Search

PIECES = 40
SEARCHES = nodes(1.0, 15)
SEARCHES["beam"] |= {"coverage_penalty": 0.0}
RECORDED = [
    name for name in REMEMBERING if name != "transformer-window"
]  # a ring is written in another slot


class Event:
    """In place of CUDA's: this device computes at once."""

    def synchronize(self) -> None:
        pass


@pytest.fixture
def steps() -> Iterator[list[int]]:
    """A CPU that repeats steps as a GPU does; the most tokens of each stretch, 0 of a refusal.

    The first stretch is short, so that there are several and sentences leave between them.
    """
    asked = []
    original = cuda_graph.replayed

    def watched(take: Any, progress: Any, **options: Any) -> Any:
        after = original(take, progress, **options)
        asked.append(0 if after is progress else options["most"])
        return after

    with (
        mock.patch.object(hypothesis, "reached", return_value=Event()),
        mock.patch.object(hypothesis, "LATE", {"cpu"}),
        mock.patch.object(cuda_graph, "FIRST", 9),
        mock.patch.object(search.beam, "replayed", watched),
    ):
        yield asked


def make(name: str, seed: int = 0) -> Seq2Seq:
    torch.manual_seed(seed)
    options = REMEMBERING[name] | {"tied_embeddings": "none"}
    model = registry.build(options, source_vocab_size=PIECES, target_vocab_size=PIECES)
    return model.double().eval()


BATCH = sentences(PIECES, 9, 2, 17, 1, 5, 12, 3, 8)


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for some, others in zip(found, expected, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        for one, other in zip(some, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-9)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-9)
            torch.testing.assert_close(one.alignment, other.alignment, rtol=0, atol=1e-9)


def both(
    model: Seq2Seq,
    finder: Search,
    request: pytest.FixtureRequest,
    *,
    before: Callable[[], object] = lambda: None,
) -> tuple[list[list[Hypothesis]], list[list[Hypothesis]], list[int]]:
    """What is found by steps that differ, and by steps that are repeated; and their stretches.

    Shapes are checked in the second: those of the first are in the tests of models and searches.
    """
    with mock.patch.object(jaxtyping.config, "jaxtyping_disable", True):
        expected = finder(model, *BATCH, need_alignment=True)
    stretches = request.getfixturevalue("steps")
    before()
    with mock.patch.object(jaxtyping.config, "jaxtyping_disable", False):
        return expected, finder(model, *BATCH, need_alignment=True), stretches


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "beam") for name in REMEMBERING), *(("transformer", kind) for kind in SEARCHES)],
)
def test_what_is_found_is_the_same(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Each model in one search, and each search with one model."""
    finder = search.build({"kind": kind, **SEARCHES[kind]})
    expected, found, stretches = both(make(name), finder, request)
    same(found, expected)
    if name in RECORDED:
        assert stretches[0]
    else:
        assert stretches == [0]  # what was refused is not asked for again


@pytest.mark.parametrize("name", ["transformer", "transformer-alibi", "transformer-strided"])
def test_caches_may_keep_columns_that_nobody_sees(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU's do, where they would have to be counted."""

    def keep(self: Ancestry, sentences: Tensor) -> tuple[Ancestry, None]:
        if self.stands is None or self.bias is None:
            return self, None
        return replace(self, stands=self.stands[sentences], bias=self.bias[sentences]), None

    expected, found, stretches = both(
        make(name), search.build({"kind": "beam", **SEARCHES["beam"]}), request,
        before=lambda: monkeypatch.setattr(Ancestry, "keep", keep),
    )  # fmt: skip
    same(found, expected)
    assert len(stretches) > 1


@pytest.mark.unchecked
def test_ensembles_and_shortlists_too(request: pytest.FixtureRequest) -> None:
    finder = search.build({"kind": "beam", **SEARCHES["beam"]})
    some = Shortlist(torch.arange(4, 20), torch.randint(20, PIECES, (PIECES, 2)))
    expected, found, stretches = both(
        Ensemble([make("transformer"), make("rnn-additive", 1)]),
        ShortlistSearch(finder, some), request,
    )  # fmt: skip
    same(found, expected)
    assert stretches[0]
    with_a_ring = Ensemble([make("transformer"), make("transformer-window", 1)])
    stretches.clear()
    finder(with_a_ring, *BATCH)
    assert stretches == [0]


def test_under_autocast_too(request: pytest.FixtureRequest) -> None:
    """As in a run's own validations: keys are of 16 bits, and words of 32."""
    model, finder = make("transformer").float(), search.build({"kind": "beam", **SEARCHES["beam"]})
    with torch.autocast("cpu", torch.bfloat16):
        expected, found, stretches = both(model, finder, request)
    assert stretches[0]
    for some, others in zip(found, expected, strict=True):
        assert [one.tokens for one in some[:1]] == [one.tokens for one in others[:1]]


def test_a_step_that_changes_a_shape_is_refused() -> None:
    def longer(progress: Any) -> Any:
        nodes = search.hypothesis.Nodes(*[torch.zeros(1)] * 8)
        after = cuda_graph.Progress(
            torch.cat([progress.open, progress.open]), None, progress.length, progress.nodes
        )
        return after, cuda_graph.StepRecord(nodes, None, torch.ones(1))

    step = cuda_graph.Replay(
        longer, cuda_graph.Progress(torch.ones(2), None, 0, 0), torch.device("cpu")
    )
    step()
    with pytest.raises(ValueError, match=r"open changed from .*4.* to .*8"):
        step()
