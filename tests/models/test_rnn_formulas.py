"""Recurrent models against loops written from the papers' formulas, in float64, a word at a time.

GRU: Cho et al. 2014, with r_t outside the product with U as PyTorch has it. LSTM: Hochreiter &
Schmidhuber 1997, with the forget gate of Gers et al. 2000. Every model ends in Luong's h̃_t, where
Cho and Bahdanau have a maxout, and begins from the ends of both directions.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_models import RNN as SMALL
from torch import Tensor, nn

from translate.models.rnn import RNN, RNNConfig

BAHDANAU = {"attention": "additive", "query": "previous"}
LUONG = {"attention": "general", "query": "current"}
CHO = {"attention": "none", "query": "current"}
SENTENCES = [([4, 5, 6, 7, 8], [1, 9, 4, 7]), ([7, 4, 4], [1, 6, 6, 10])]

State = tuple[Tensor, ...]


def make(**options: Any) -> RNN:
    torch.manual_seed(0)
    config = RNNConfig(**SMALL | options)
    model = RNN(config, source_vocab_size=11, target_vocab_size=11).double().eval()
    for bias in (p for name, p in model.named_parameters() if "bias" in name):
        nn.init.normal_(bias)  # zero at first, which would hide a forgotten one
    return model


def cell(layer: nn.LSTM | nn.GRU, x: Tensor, before: State) -> State:
    """The state after reading x: h, and of an LSTM c."""
    ((W, U, b, d),) = layer.all_weights
    h = before[0]
    if isinstance(layer, nn.LSTM):
        i, f, g, o = (W @ x + b + U @ h + d).chunk(4)
        c = torch.sigmoid(f) * before[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    (r, z, n), (r_h, z_h, n_h) = (W @ x + b).chunk(3), (U @ h + d).chunk(3)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return (z * h + (1 - z) * torch.tanh(n + r * n_h),)


def empty(layer: nn.LSTM | nn.GRU, *h: Tensor) -> State:
    """The state before anything was read: of zeros, or with h given."""
    zeros = torch.zeros(layer.hidden_size, dtype=torch.float64)
    states = 2 if isinstance(layer, nn.LSTM) else 1
    return (*h, zeros, zeros)[:states]


def read(layer: nn.LSTM | nn.GRU, words: list[Tensor]) -> list[Tensor]:
    state, outputs = empty(layer), []
    for x in words:
        state = cell(layer, x, state)
        outputs.append(state[0])
    return outputs


def embedded(embedding: nn.Embedding, words: list[int]) -> list[Tensor]:
    return [embedding.weight[word] * math.sqrt(embedding.embedding_dim) for word in words]


def encoded(model: RNN, source: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """h_1 … h_T of the top layer, and h_T of every layer: where each direction ends."""
    h, ends = embedded(model.source_embedding, source), []
    for layer in model.encoder.layers:
        ahead = read(layer.forwards.layers[0], h)
        back = read(layer.backwards.layers[0], h[::-1])[::-1]
        h = [torch.cat(pair) for pair in zip(ahead, back, strict=True)]
        ends.append(torch.cat((ahead[-1], back[0])))
    return h, ends


def attended(model: RNN, s: Tensor, h: list[Tensor]) -> tuple[Tensor, Tensor]:
    """c = Σ_i α_i h_i and α = softmax(e), with the score of Bahdanau or that of Luong."""
    score: Any = model.score
    if hasattr(score, "v"):
        W_Q, W_K, v = score.W_Q.weight, score.W_K.weight, score.v.weight[0]
        e = [v @ torch.tanh(W_Q @ s + W_K @ h_i) for h_i in h]
    else:
        e = [s @ score.W.weight @ h_i / math.sqrt(len(s)) for h_i in h]
    powers = [math.exp(e_i) for e_i in e]
    alpha = [power / sum(powers) for power in powers]
    c = sum((a * h_i for a, h_i in zip(alpha, h, strict=True)), torch.zeros_like(h[0]))
    return c, torch.tensor(alpha, dtype=torch.float64)


def decoded(model: RNN, source: list[int], target: list[int]) -> tuple[Tensor, list[Tensor]]:
    """h̃_1 … h̃_T, and α_1 … α_T where the model has attention."""
    h, ends = encoded(model, source)
    layers = list(model.decoder.layers)
    first = ends[-len(layers) :]
    if model.bridge:  # s_0 = tanh(W_s h_T)  (Bahdanau, A.2.2, of the backward end alone)
        pairs = zip(model.bridge, first, strict=True)
        first = [torch.tanh(W_s.weight @ h_T + W_s.bias) for W_s, h_T in pairs]
    states = [empty(layer, s_0) for layer, s_0 in zip(layers, first, strict=True)]
    fed = torch.zeros(model.W_c.out_features, dtype=torch.float64)  # h̃_0
    found, alignment = [], []
    c, alpha = ends[-1], None  # c = h_T  (Cho, section 2.2)
    for y in embedded(model.target_embedding, target):
        inputs = [y]  # y_{t-1}
        if model.query == "previous":  # s_t = f(s_{t-1}, y_{t-1}, c_t)  (Bahdanau, A.2.2)
            c, alpha = attended(model, states[-1][0], h)
        if model.query == "previous" or model.score is None:
            inputs.append(c)
        if model.input_feeding:  # s_t = f(s_{t-1}, [y_{t-1} ; h̃_{t-1}])  (Luong, section 3.3)
            inputs.append(fed)
        x = torch.cat(inputs)
        for index, layer in enumerate(layers):
            states[index] = cell(layer, x, states[index])
            x = states[index][0]
        if model.query == "current" and model.score is not None:
            c, alpha = attended(model, x, h)
        fed = torch.tanh(model.W_c.weight @ torch.cat((c, x)))  # h̃_t  (Luong, eq. 5)
        found.append(fed)
        alignment += [] if alpha is None else [alpha]
    return torch.stack(found), alignment


@torch.no_grad()
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bridge", ["none", "linear"])
@pytest.mark.parametrize("decoder_layers", [1, 2])
@pytest.mark.parametrize(
    "attention",
    [CHO, BAHDANAU, BAHDANAU | {"input_feeding": True}, LUONG, LUONG | {"input_feeding": True}],
    ids=["none", "previous", "previous-feeding", "current", "current-feeding"],
)
def test_the_model_is_the_papers_formulas(
    attention: dict[str, Any], decoder_layers: int, bridge: str, cell: str
) -> None:
    model = make(cell=cell, bridge=bridge, decoder_layers=decoder_layers, **attention)
    source = torch.tensor([words + [0] * (5 - len(words)) for words, _ in SENTENCES])
    target = torch.tensor([words for _, words in SENTENCES])
    memory = model.encode(source, source != 0)
    hidden, alignment = model.decode(target, memory, need_alignment=True)
    for b, (words, target_in) in enumerate(SENTENCES):
        expected, weights = decoded(model, words, target_in)
        torch.testing.assert_close(hidden[b], expected, rtol=0, atol=1e-12)
        if alignment is None:
            assert weights == []
        else:
            actual = alignment[b, 0, 0, :, : len(words)]
            torch.testing.assert_close(actual, torch.stack(weights), rtol=0, atol=1e-12)
