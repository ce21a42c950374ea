"""The contract of tests/models/test_contract.py, for models of several families together."""

from __future__ import annotations

import math

import pytest
import torch
from small_models import CONVOLUTIONAL, RNN, TRANSFORMER

from translate.attention.masks import padding_mask
from translate.extras.ensemble import Ensemble
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.models.state_tensors import without_room
from translate.search import BeamConfig, BeamSearch
from translate.vocabulary import PAD

WORDS = 11
EXACT = {"rtol": 0.0, "atol": 1e-12}


def make(*options: dict) -> list[Seq2Seq]:
    models = []
    for seed, some in enumerate(options):
        torch.manual_seed(seed)
        model = registry.build(some, source_vocab_size=WORDS, target_vocab_size=WORDS).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)
        models.append(model.eval())
    return models


@pytest.fixture(scope="module")
def models() -> list[Seq2Seq]:
    return make(RNN, TRANSFORMER, CONVOLUTIONAL, RNN | {"attention": "none", "query": "current"})


def sentences(*lengths: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, WORDS, (len(lengths), max(lengths)), generator=generator)
    mask = padding_mask(torch.tensor(lengths), max(lengths))
    return tokens.masked_fill(~mask, PAD), mask


def test_probabilities_are_the_mean_of_the_models(models: list[Seq2Seq]) -> None:
    source, (target, _) = sentences(5, 3), sentences(6, 6, seed=1)
    ensemble = Ensemble(models)
    found = ensemble.project(ensemble.decode(target, ensemble.encode(*source)).hidden)
    each = [m.project(m.decode(target, m.encode(*source)).hidden).softmax(-1) for m in models]
    torch.testing.assert_close(found.exp(), sum(each) / len(each), **EXACT)
    torch.testing.assert_close(found.log_softmax(-1), found, **EXACT)


def test_a_memory_at_some_sentences_is_that_of_each_model(models: list[Seq2Seq]) -> None:
    ensemble, rows = Ensemble(models), torch.tensor([1, 0, 1])
    (source, mask), (target, real) = sentences(5, 3), sentences(4, 6, 3, seed=1)
    expected = ensemble.decode(target, ensemble.encode(source[rows], mask[rows])).hidden
    actual = ensemble.decode(target, ensemble.encode(source, mask).at(rows)).hidden
    torch.testing.assert_close(actual[real], expected[real], **EXACT)


def test_steps_select_and_keep_equal_the_whole_target(models: list[Seq2Seq]) -> None:
    ensemble = Ensemble(models)
    source, (target, _) = sentences(5, 3, 4), sentences(4, 4, 4, seed=1)
    memory = ensemble.encode(*source)
    whole = ensemble.decode(target, memory, need_alignment=True)
    state = ensemble.start(memory)
    step = ensemble.decode_step(target[:, 0], state, need_alignment=True)
    torch.testing.assert_close(step.hidden, whole.hidden[:, 0], **EXACT)
    torch.testing.assert_close(step.alignment, whole.alignment[:, :, :, 0], **EXACT)
    state = step.state.select(torch.arange(3).repeat_interleave(2)).keep(torch.tensor([2, 0]))
    step = ensemble.decode_step(target[[2, 2, 0, 0], 1], state)
    torch.testing.assert_close(step.hidden, whole.hidden[[2, 2, 0, 0], 1], **EXACT)


def test_the_alignment_is_the_mean_over_those_that_have_one(models: list[Seq2Seq]) -> None:
    source, (target, _) = sentences(5, 3), sentences(4, 4, seed=1)
    ensemble = Ensemble(models)
    found = ensemble.decode(target, ensemble.encode(*source), need_alignment=True).alignment
    each = [m.decode(target, m.encode(*source), need_alignment=True).alignment for m in models]
    expected = sum(a.mean((1, 2)) for a in each if a is not None) / 3
    assert each[3] is None
    torch.testing.assert_close(found[:, 0, 0], expected, **EXACT)
    none = Ensemble(models[3:])
    assert none.decode(target, none.encode(*source), need_alignment=True).alignment is None


def test_beam_search_scores_are_the_ensemble_s(models: list[Seq2Seq]) -> None:
    ensemble = Ensemble(models)
    search = BeamSearch(BeamConfig(kind="beam",
        beam_size=4, length_penalty="none", alpha=0.0, coverage_penalty=0.0, n_best=4,
        max_length_ratio=1.0, max_length_offset=4,
    ))  # fmt: skip
    source, mask = sentences(5, 3)
    for row, hypotheses in enumerate(search(ensemble, source, mask)):
        alone = source[row : row + 1, : int(mask[row].sum())]
        for hypothesis in hypotheses:
            target = torch.tensor([[2, *hypothesis.tokens]])
            answers = torch.tensor([*hypothesis.tokens, 3])
            memory = ensemble.encode(alone, torch.ones_like(alone, dtype=torch.bool))
            logits = ensemble.project(ensemble.decode(target, memory).hidden[0])
            own = logits.log_softmax(-1).gather(1, answers[:, None])[:, 0].tolist()
            assert hypothesis.token_log_probs == pytest.approx(own, abs=1e-10)
            assert hypothesis.log_prob == pytest.approx(math.fsum(own), abs=1e-10)


def test_an_ensemble_has_the_weights_of_its_models_in_one_type(models: list[Seq2Seq]) -> None:
    mixed = make(RNN, TRANSFORMER)
    mixed[1].float()
    ensemble = Ensemble(mixed)
    assert {parameter.dtype for parameter in ensemble.parameters()} == {torch.float64}
    assert len(list(ensemble.parameters())) == sum(len(list(m.parameters())) for m in mixed)
    assert next(mixed[1].parameters()).dtype == torch.float32  # its owner's still


def test_probabilities_are_averaged_in_float32_at_least() -> None:
    """In bfloat16 the mean of two probabilities keeps two digits."""
    source, (target, _) = sentences(5), sentences(4, seed=1)
    ensemble = Ensemble([model.bfloat16() for model in make(TRANSFORMER, RNN)])
    found = ensemble.project(ensemble.decode(target, ensemble.encode(*source)).hidden)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.exp().sum(-1), torch.ones_like(found[..., 0]))


def test_an_ensemble_reads_what_each_of_its_models_can() -> None:
    short, long = (
        TRANSFORMER | {"positions": "learned", "max_positions": most} for most in (9, 12)
    )
    assert Ensemble(make(RNN, long, short)).max_length == 9
    assert Ensemble(make(RNN)).max_length is None


def test_a_traceable_state_takes_the_same_step(models: list[Seq2Seq]) -> None:
    ensemble = Ensemble(models)
    source, (target, _) = sentences(5, 3), sentences(4, 4, seed=1)
    expected = ensemble.decode_step(target[:, 0], ensemble.start(ensemble.encode(*source)))
    state = without_room(ensemble.start(ensemble.encode(*source)), 0)
    found = ensemble.decode_step(target[:, 0], state)
    torch.testing.assert_close(found.hidden, expected.hidden, **EXACT)
    assert found.alignment is None
