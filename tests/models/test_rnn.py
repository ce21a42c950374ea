"""What only recurrent models promise: one pass where it can be, fresh coverage, a moving window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import RNN as SMALL
from torch import Tensor, nn

from translate.attention.masks import padding_mask
from translate.attention.scores import SCORES
from translate.models.rnn import RNN, RNNConfig

EXACT = {"rtol": 0.0, "atol": 1e-12}
OPTIONS = SMALL | {
    "cell": "gru", "embedding_size": 6, "hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1,
    "attention_size": 5, "window": 1, "query": "current", "tied_embeddings": "none", "dropout": 0.0,
}  # fmt: skip
ATTENTIONS = ["none", *SCORES, "local_m", "local_p"]


def make(**options: Any) -> RNN:
    torch.manual_seed(0)
    config = RNNConfig(**OPTIONS | options)
    assert [*config.contradictions()] == []
    return RNN(config, source_vocab_size=11, target_vocab_size=11).double()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Source, its mask, target_in."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(4, 11, (2, 6), generator=generator)
    target = torch.randint(4, 11, (2, 5), generator=generator)
    return source, padding_mask(torch.tensor([6, 3]), 6), target


@pytest.mark.parametrize(
    "options", [{"query": "previous"}, {"attention": "none"}, {"coverage": "linguistic"}]
)
def test_the_encoder_has_a_width_of_its_own(options: dict[str, Any]) -> None:
    """Bahdanau et al. 2015: two directions of 1,000 each, a decoder of 1,000."""
    model = make(encoder_size=16, **options)
    source, source_mask, _ = batch()
    memory = model.encode(source, source_mask)
    state = model.start(memory)
    assert [*memory.states.shape] == [*source.shape, 16]
    assert [*state.recurrent[0].shape] == [1, 2, 8]
    assert learns(model)


def decoder_runs(model: RNN) -> int:
    """How often the recurrence is called for one target of five words."""
    source, source_mask, target = batch()
    calls = []
    model.decoder.register_forward_hook(lambda *_: calls.append(1))
    model.decode(target, model.encode(source, source_mask))
    return len(calls)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_without_feedback_the_whole_target_is_read_at_once(attention: str) -> None:
    assert decoder_runs(make(attention=attention)) == 1


@pytest.mark.parametrize(
    "feedback", [{"query": "previous"}, {"input_feeding": True}, {"coverage": "linguistic"}]
)
def test_with_feedback_each_word_waits_for_the_last(feedback: dict[str, Any]) -> None:
    assert decoder_runs(make(**feedback)) == 5


@pytest.mark.parametrize("attention", ATTENTIONS[1:])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_every_attention_trains_with_every_query_and_feeding(
    attention: str, query: str, input_feeding: bool
) -> None:
    options = {"attention": attention, "query": query, "input_feeding": input_feeding}
    model = make(**options)
    assert learns(model)


@pytest.mark.parametrize("attention", ["additive", "concat", "local_m", "local_p"])
def test_coverage_trains_with_every_score_that_takes_it(attention: str) -> None:
    options = {"attention": attention, "local_score": "additive", "coverage": "linguistic"}
    model = make(**options)
    assert learns(model)


def learns(model: RNN) -> bool:
    """Every parameter is moved by the loss, none by NaN."""
    source, source_mask, target = batch()
    hidden = model.decode(target, model.encode(source, source_mask)).hidden
    model.project(hidden).logsumexp(-1).sin().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name
    return True


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "general", "projected"])
def test_coverage_is_refused_by_scores_without_a_place_for_it(score: str) -> None:
    alone = RNNConfig(**OPTIONS | {"attention": score, "coverage": "linguistic"})
    (problem,) = alone.contradictions()
    assert f"{score} has no such term" in problem
    local = {"attention": "local_p", "local_score": score, "coverage": "linguistic"}
    (problem,) = RNNConfig(**OPTIONS | local).contradictions()
    assert f"{score} has no such term" in problem
    assert "model.local_score=additive" in problem


def test_local_m_looks_around_the_target_position_at_each_step() -> None:
    model = make(attention="local_m", input_feeding=True, window=1)
    source, source_mask, target = batch()
    state = model.start(model.encode(source, source_mask))
    for t in range(5):
        step = model.decode_step(target[:, t], state, need_alignment=True)
        state = step.state
        seen = [row[0, 0].nonzero().flatten().tolist() for row in step.alignment]
        assert seen == [[i for i in range(n) if abs(i - t) <= 1] for n in (6, 3)]


def test_coverage_of_a_step_is_what_all_steps_before_it_looked_at() -> None:
    """Bahdanau's decoder written out: the additive score with C_ti = (1/Φ_i) Σ_{k<t} α_ki."""
    model = make(query="previous", coverage="linguistic")
    source, source_mask, target = batch()
    memory = model.encode(source, source_mask)
    alignment = model.decode(target, memory, need_alignment=True).alignment[:, 0, 0]
    state = model.start(memory)
    W_Q, W_K, v = model.score.W_Q.weight, model.score.W_K.weight, model.score.v.weight[0]
    covered = torch.zeros(6, dtype=torch.float64)  # Σ_{k<t} α_k of the first sentence
    for t in range(5):
        scores = []
        for i, h in enumerate(memory.states[0]):
            phi = 2 / (1 + torch.exp(-model.coverage.U_f.weight[0] @ h))
            C = covered[i] / phi
            inner = W_Q @ state.recurrent[0][-1, 0] + W_K @ h + model.coverage.V.weight[:, 0] * C
            scores.append(v @ torch.tanh(inner))
        weights = torch.stack(scores).softmax(0)
        torch.testing.assert_close(alignment[0, t], weights, **EXACT)
        covered = covered + weights
        state = model.decode_step(target[:, t], state).state


@torch.no_grad()
def test_coverage_adds_up_in_float32_under_half_precision() -> None:
    model = make(query="previous", coverage="linguistic").bfloat16()
    source, source_mask, _ = batch()
    state = model.start(model.encode(source, source_mask))
    covered = torch.zeros(2, 6)
    for t in range(150):
        words = torch.tensor([4 + t % 7, 10 - t % 7])
        step = model.decode_step(words, state, need_alignment=True)
        state = step.state
        covered += step.alignment[:, 0, 0]
    torch.testing.assert_close(state.attended, covered)


def test_projected_attention_projects_each_word_once() -> None:
    """M + N: five queries one after another, two sentences of six keys."""
    model = make(attention="projected", query="previous")
    rows = {"W_Q": 0, "W_K": 0}

    def count(name: str) -> None:
        def hook(_: Any, inputs: Any, output: Tensor) -> None:
            rows[name] += output.numel() // output.shape[-1]

        getattr(model.score, name).register_forward_hook(hook)

    count("W_Q")
    count("W_K")
    source, source_mask, target = batch()
    model.decode(target, model.encode(source, source_mask))
    assert rows == {"W_Q": 2 * 5, "W_K": 2 * 6}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrences_start_orthogonal_and_forget_gates_open(cell: str) -> None:
    layers = [m for m in make(cell=cell).modules() if isinstance(m, nn.LSTM | nn.GRU)]
    assert len(layers) == 3  # forwards, backwards, decoder
    for layer in layers:
        ((_, U, b, d),) = layer.all_weights
        gates = 4 if cell == "lstm" else 3
        for gate in U.chunk(gates):
            one = torch.eye(len(gate), dtype=gate.dtype)
            torch.testing.assert_close(gate @ gate.T, one, rtol=0, atol=1e-5)  # drawn in float32
        opened = [0, 1, 0, 0] if cell == "lstm" else [0, 0, 0]
        assert [set(gate.tolist()) for gate in (b + d).chunk(gates)] == [{bias} for bias in opened]
