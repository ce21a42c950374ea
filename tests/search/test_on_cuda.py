"""On a GPU a search finds what it finds on a CPU, and waits for no token."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from slow_twins import nodes
from small_models import REMEMBERING, sentences

from translate import search
from translate.attention.dot_product import leave_out_cudnn
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.search import cuda_graph
from translate.vocabulary import EOS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

PIECES = 300  # more than a block of `largest`
SEARCHES = nodes(1.0, 6)
# each model in one search, and each search with one model
PAIRS = [*((name, "beam") for name in REMEMBERING), *(("transformer", kind) for kind in SEARCHES)]


@pytest.fixture(autouse=True)
def _as_the_program_does() -> None:
    leave_out_cudnn()


def make(name: str) -> Seq2Seq:
    """Sharper than a new model, so that translations end at many lengths."""
    torch.manual_seed(0)
    model = registry.build(REMEMBERING[name], source_vocab_size=PIECES, target_vocab_size=PIECES)
    for weight in model.parameters():
        weight.data *= 2
    return model.double().eval()


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_it_finds_what_it_finds_on_a_cpu(name: str, kind: str, monkeypatch) -> None:
    """In several stretches of recorded steps, between which sentences leave."""
    monkeypatch.setattr(cuda_graph, "FIRST", 9)
    model, finder = make(name), search.build({"kind": kind, **SEARCHES[kind]})
    source, mask = sentences(PIECES, 9, 2, 17, 1, 5, 12, 3)
    here = finder(model, source, mask, need_alignment=True)
    there = finder(model.cuda(), source.cuda(), mask.cuda(), need_alignment=True)
    assert len({len(best.tokens) for best, *_ in here}) > 1
    for expected, found in zip(here, there, strict=True):
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        for one, other in zip(found, expected, strict=True):
            # the waves of positions, and what words were not covered costs, are in float32
            assert one.score == pytest.approx(other.score, abs=1e-4)
            torch.testing.assert_close(one.alignment.cpu(), other.alignment, rtol=0, atol=1e-4)


@contextmanager
def waits() -> Iterator[list[str]]:
    """Where the program waited for the GPU, as PyTorch tells it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            found: list[str] = []
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found += [
        f"{warning.filename}:{warning.lineno}"
        for warning in told
        if "synchronizing CUDA operation" in str(warning.message)
    ]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_it_waits_for_a_batch_and_for_no_token(name: str, kind: str, monkeypatch) -> None:
    model = make(name).cuda()
    endless = (
        torch.zeros(PIECES, device="cuda").double().index_fill(0, torch.tensor(EOS).cuda(), -1e9)
    )
    project = model.project
    monkeypatch.setattr(model, "project", lambda hidden: project(hidden) + endless)
    source, mask = (part.cuda() for part in sentences(PIECES, 5, 5, 5))
    found = []
    for length in (12, 30):  # steps of both are recorded once
        keys = SEARCHES[kind] | {"max_length_ratio": 0.0, "max_length_offset": length}
        finder = search.build({"kind": kind, **keys})
        with waits() as where:
            best = finder(model, source, mask)
        assert all(len(one.tokens) == length and EOS not in one.tokens for one, *_ in best)
        found.append(where)
    few, many = found
    assert len(few) == len(many) < 12, many
