"""The convolutional model against loops written from the paper's formulas, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from small_models import CONVOLUTIONAL
from torch import Tensor

from translate.errors import UserError
from translate.models import registry
from translate.models.convolutional import Convolutional, ConvolutionalConfig, GatedConvolution

OPTIONS = CONVOLUTIONAL | {
    "embedding_size": 6, "hidden_size": 8, "decoder_layers": 3, "decoder_width": 4,
    "max_positions": 12, "tied_embeddings": "none", "dropout": 0.2,
}  # fmt: skip
SIZES = {"source_vocab_size": 9, "target_vocab_size": 11}
HALF = math.sqrt(0.5)


@pytest.fixture
def model() -> Convolutional:
    torch.manual_seed(0)
    model = Convolutional(ConvolutionalConfig(**OPTIONS), **SIZES).double().eval()
    for bias in (p for name, p in model.named_parameters() if name.endswith("bias")):
        torch.nn.init.normal_(bias)  # zero at first, which would hide a forgotten one
    return model


def gated(block: GatedConvolution, window: list[Tensor]) -> Tensor:
    """v([A B]) = A ⊗ σ(B), where [A B] = W X + b."""
    weight, bias = block.convolution.weight, block.convolution.bias
    assert bias is not None
    y = bias + sum(weight[:, :, k] @ x for k, x in enumerate(window))
    a, b = y[: len(y) // 2], y[len(y) // 2 :]
    return a * torch.sigmoid(b)


def encoded(model: Convolutional, source: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """z and e of every source word."""
    e = [model.source_embedding.weight[w] + model.source_positions.table[i]
         for i, w in enumerate(source)]  # fmt: skip
    h = [model.encoder_in(x) for x in e]
    empty = torch.zeros_like(h[0])
    for layer in model.encoder_layers:
        inputs = [empty, *h, empty]
        h = [
            HALF * (gated(layer.convolution, inputs[i : i + 3]) + h[i]) for i in range(len(source))
        ]
    return [model.encoder_out(x) for x in h], e


def decoded(model: Convolutional, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """The decoder's outputs (T, E) and the attention of each layer (L, T, S)."""
    z, e = encoded(model, source)
    g = [model.target_embedding.weight[w] + model.target_positions.table[i]
         for i, w in enumerate(target)]  # fmt: skip
    h = [model.decoder_in(x) for x in g]
    empty = torch.zeros_like(h[0])
    alignment = []
    for layer in model.decoder_layers:
        inputs, rows, after = [empty] * 3 + h, [], []
        for i in range(len(target)):
            convolved = HALF * (gated(layer.convolution, inputs[i : i + 4]) + h[i])
            d = layer.query(convolved) + g[i]
            scores = [math.exp(d @ z_j) for z_j in z]
            a = [score / sum(scores) for score in scores]
            c = sum(a_j * (z_j + e_j) for a_j, z_j, e_j in zip(a, z, e, strict=True))
            after.append(HALF * (convolved + layer.context(c * math.sqrt(len(source)))))
            rows.append(a)
        h = after
        alignment.append(rows)
    return torch.stack([model.decoder_out(x) for x in h]), torch.tensor(
        alignment, dtype=torch.float64
    )


@torch.no_grad()
def test_the_model_is_the_papers_formulas(model: Convolutional) -> None:
    sentences = [([4, 5, 6, 7, 8], [1, 9, 4, 7, 5, 6]), ([7, 4, 4], [1, 6, 6, 10, 5, 4])]
    source = torch.tensor([s + [0] * (5 - len(s)) for s, _ in sentences])
    target = torch.tensor([t for _, t in sentences])
    memory = model.encode(source, source != 0)
    hidden, alignment = model.decode(target, memory, need_alignment=True)
    assert alignment is not None
    assert alignment.shape == (2, 3, 1, 6, 5)
    for b, (words, target_in) in enumerate(sentences):
        expected, weights = decoded(model, words, target_in)
        torch.testing.assert_close(hidden[b], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(alignment[b, :, 0, :, : len(words)], weights)


def test_initial_weights_keep_the_variance_as_the_paper_says() -> None:
    torch.manual_seed(0)
    sizes = {"embedding_size": 96, "hidden_size": 128, "encoder_width": 5, "max_positions": 200}
    model = Convolutional(
        ConvolutionalConfig(**OPTIONS | sizes), source_vocab_size=500, target_vocab_size=600
    )
    layer = model.decoder_layers[0]
    deviations = {
        model.source_embedding.weight: 0.1,
        model.target_positions.table: 0.1,
        model.encoder_layers[1].convolution.convolution.weight: (4 * 0.8 / (5 * 128)) ** 0.5,
        layer.convolution.convolution.weight: (4 * 0.8 / (4 * 128)) ** 0.5,
        layer.query.weight: 128**-0.5,
        layer.context.weight: 96**-0.5,
        model.encoder_in.weight: (0.8 / 96) ** 0.5,
        model.decoder_out.weight: 128**-0.5,
        model.output.weight: (0.8 / 96) ** 0.5,
    }
    for weight, deviation in deviations.items():
        assert weight.std().item() == pytest.approx(deviation, rel=0.03)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_a_state_has_seen_the_windows_below_it_and_no_more(model: Convolutional) -> None:
    """Two encoder layers of three words: two words to either side."""
    source = torch.tensor([[4, 5, 6, 7, 8, 4, 5, 6, 7]])
    mask = torch.ones_like(source, dtype=torch.bool)
    changed = source.clone()
    changed[0, 4] = 5
    before, after = (model.encode(ids, mask).states[0] for ids in (source, changed))
    moved = [i for i in range(9) if not torch.equal(before[i], after[i])]
    assert moved == [2, 3, 4, 5, 6]


def test_sentences_beyond_the_learned_positions_are_refused(model: Convolutional) -> None:
    tokens = torch.full((1, 13), 4)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    memory = model.encode(tokens[:, :12], mask[:, :12])
    state = model.start(memory)
    for _ in range(12):
        state = model.decode_step(tokens[:, 0], state).state
    message = r"13 pieces is longer than the 12 learned positions .*model\.max_positions"
    for read in (
        lambda: model.encode(tokens, mask),
        lambda: model.decode(tokens, memory),
        lambda: model.decode_step(tokens[:, 0], state),
    ):
        with pytest.raises(UserError, match=message):
            read()


def test_a_window_without_a_middle_is_refused() -> None:
    with pytest.raises(UserError, match=r"a window of 4 words .*model\.encoder_width.* odd"):
        registry.build(OPTIONS | {"encoder_width": 4}, **SIZES)
