"""What is the Transformer's own: order, norms, and options that change the network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import TRANSFORMER
from torch import Tensor, nn

from translate.attention.multi_head import FullAttention
from translate.attention.positions import LinearBiases, RelativeKeys
from translate.extras.kernels import recorded_calls
from translate.extras.patterns import (
    FastWeightAttention,
    FixedAttention,
    LinearAttention,
    SlidingWindowAttention,
    StridedAttention,
)
from translate.models.transformer import Transformer, TransformerConfig

OPTIONS = TRANSFORMER | {"decoder_layers": 1, "positions": "none", "window": 4, "summary": 1}


def make(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(**OPTIONS | changes)
    return Transformer(config, source_vocab_size=11, target_vocab_size=11).double().eval()


def encoded(model: Transformer, words: Tensor) -> Tensor:
    return model.encode(words[None], torch.ones(1, len(words), dtype=torch.bool)).states[0]


@pytest.mark.parametrize("kind", ["full", "linear", "fast_weights"])
@given(order=st.permutations(range(7)))
@settings(max_examples=10)
def test_without_positions_the_encoder_sees_a_set(kind: str, order: list[int]) -> None:
    model, words = make(self_attention=kind), torch.arange(4, 11)
    states = encoded(model, words)
    torch.testing.assert_close(encoded(model, words[order]), states[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("positions", "kind"),
    [
        ("sinusoidal", "full"), ("learned", "full"), ("relative", "full"), ("rotary", "full"),
        ("alibi", "full"), ("sinusoidal", "linear"), ("learned", "fast_weights"),
    ],
)  # fmt: skip
def test_with_positions_the_encoder_tells_the_order(positions: str, kind: str) -> None:
    model, words = make(positions=positions, self_attention=kind), torch.arange(4, 11)
    order = torch.tensor([1, 2, 0, 3, 6, 4, 5])
    assert not torch.allclose(encoded(model, words[order]), encoded(model, words)[order])


@pytest.mark.parametrize(("positions", "blind"), [("alibi", True), ("relative", False)])
def test_symmetric_distances_alone_do_not_tell_a_sentence_from_its_mirror(
    positions: str, blind: bool
) -> None:
    model, words = make(positions=positions), torch.arange(4, 11)
    mirrored = encoded(model, words.flip(0)).flip(0)
    assert torch.allclose(mirrored, encoded(model, words), rtol=0, atol=1e-12) == blind


def test_matrices_start_within_the_bounds_of_glorot_and_bengio() -> None:
    """U(-a, a) with a = √(6 / (inputs + outputs)), and biases of zero."""
    model = make(d_model=64, d_ff=128)
    for stack in (model.encoder_layers, model.decoder_layers):
        for layer in (module for module in stack.modules() if isinstance(module, nn.Linear)):
            bound = (6 / sum(layer.weight.shape)) ** 0.5
            assert 0.95 * bound < layer.weight.abs().max() <= bound
            assert not layer.bias.any()


def test_attention_dropout_reaches_every_attention_and_those_alone() -> None:
    words, mask = torch.arange(4, 11)[None], torch.ones(1, 7, dtype=torch.bool)
    for rate in (0.5, 0.0):
        model = make(dropout=0.0, attention_dropout=rate, feed_forward_dropout=0.5 - rate).train()
        with recorded_calls(model) as calls:
            model.decode(words, model.encode(words, mask))
        assert [call.dropout for call in calls] == [rate] * 4  # twice encoding, and decoding
        x = torch.randn(1, 9, 16, dtype=torch.float64)
        for attention in (layer.cross_attention for layer in model.decoder_layers):
            memory = attention.keys_values(x)  # with weights, it is not the fused kernel that drops
            (one, _), (other, _) = (attention(x, memory, need_weights=True) for _ in range(2))
            assert torch.equal(one, other) == (rate == 0)
        for layer in (*model.encoder_layers, *model.decoder_layers):
            assert torch.equal(layer.feed_forward(x), layer.feed_forward(x)) == (rate > 0)


@pytest.mark.parametrize("side", ["encoder_layers", "decoder_layers"])
def test_a_layer_is_passed_by_at_its_rate_and_in_training_alone(side: str) -> None:
    """Unscaled, as Fan et al. 2020 have it; and weights without use get a gradient of zero."""
    torch.manual_seed(0)
    model = make(dropout=0.0, attention_dropout=0.0, feed_forward_dropout=0.0, layer_drop=0.25)
    words = torch.randn(1, 5, 16, dtype=torch.float64)
    layer = next(iter(getattr(model, side)))

    def read() -> torch.Tensor:
        if side == "encoder_layers":
            return layer(words, torch.ones(1, 1, 1, 5, dtype=torch.bool))
        memory = layer.cross_attention.keys_values(words)
        return layer(words, memory, torch.zeros(1, 1, 1, 5).double(), need_weights=False)[0]

    whole, passed = read(), 0
    model.train()
    for _ in range(400):
        left = read()
        gradients = torch.autograd.grad(left.square().sum(), list(layer.parameters()))
        used = any(gradient.any() for gradient in gradients)
        assert torch.equal(left, whole if used else words)
        passed += not used
    assert 75 < passed < 125


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norms_stand_before_the_sublayers_or_after_the_sums(norm: str) -> None:
    """x + f(norm(x)) (Xiong et al. 2020), or norm(x + f(x)) (Vaswani et al. 2017)."""
    encoder = make(norm=norm).encoder_layers[0]
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    mask = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    expected = x
    for residual, f in zip(
        encoder.residuals,
        (lambda x: encoder.self_attention(x, mask=mask), encoder.feed_forward),
        strict=True,
    ):
        n = residual.norm
        nn.init.normal_(n.weight)
        expected = expected + f(n(expected)) if norm == "pre" else n(expected + f(expected))
    torch.testing.assert_close(encoder(x, mask), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_each_stack_ends_in_a_norm_where_its_layers_have_theirs_before() -> None:
    model, words = make(), torch.arange(4, 11)[None]
    for norm in (model.encoder_norm, model.decoder_norm):
        nn.init.zeros_(norm.weight)
        nn.init.normal_(norm.bias)
    memory = model.encode(words, torch.ones(1, 7, dtype=torch.bool))
    for states, norm in (
        (memory.states, model.encoder_norm),
        (model.decode(words, memory).hidden, model.decoder_norm),
    ):
        assert torch.equal(states, norm.bias.expand_as(states))


@torch.no_grad()
def test_words_are_embedded_times_the_root_of_the_model_size() -> None:
    """Vaswani et al. 2017, section 3.4."""
    model, words, read = make(), torch.arange(4, 11)[None], []
    for layer in (model.encoder_layers[0], model.decoder_layers[0]):
        layer.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model.decode(words, model.encode(words, torch.ones(1, 7, dtype=torch.bool)))
    for embedding, x in zip((model.source_embedding, model.target_embedding), read, strict=True):
        torch.testing.assert_close(x, 4 * embedding(words), rtol=0, atol=1e-12)  # √16


def test_root_mean_square_norms_have_no_mean_and_no_bias() -> None:
    """x / √(mean x²) · g (Zhang & Sennrich 2019), everywhere."""
    model = make(normalization="rms", positions="sinusoidal")
    assert not [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    x = torch.randn(3, 16, dtype=torch.float64) + 1
    expected = x / x.square().mean(-1, keepdim=True).sqrt() * model.encoder_norm.weight
    torch.testing.assert_close(model.encoder_norm(x), expected, rtol=0, atol=1e-12)


PATTERNS = {
    "full": (FullAttention, {}),
    "sliding_window": (SlidingWindowAttention, {"window": 7}),
    "strided": (StridedAttention, {"stride": 5}),
    "fixed": (FixedAttention, {"stride": 5, "summary": 3}),
    "linear": (LinearAttention, {}),
    "fast_weights": (FastWeightAttention, {}),
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_the_key_chooses_the_self_attention_that_it_names(kind: str) -> None:
    expected, sizes = PATTERNS[kind]
    model = make(self_attention=kind, window=7, stride=5, summary=3)
    for stack, causal in ((model.encoder_layers, False), (model.decoder_layers, True)):
        for layer in stack:
            pattern = layer.self_attention.pattern
            assert type(pattern) is expected
            assert pattern.causal == causal
            assert {name: getattr(pattern, name) for name in sizes} == sizes


@pytest.mark.parametrize(
    ("positions", "relation"),
    [("relative", RelativeKeys), ("alibi", LinearBiases), ("rotary", type(None))],
)
def test_the_key_chooses_the_positions_that_it_names(positions: str, relation: type) -> None:
    model = make(positions=positions, max_distance=5)
    for layer in (*model.encoder_layers, *model.decoder_layers):
        found = layer.self_attention.pattern.relation
        assert type(found) is relation
        assert getattr(found, "max_distance", 5) == 5
        assert (layer.self_attention.rotary is not None) == (positions == "rotary")


@pytest.mark.parametrize("kind", ["sliding_window", "linear", "fast_weights"])
def test_decoding_keeps_a_memory_of_constant_size(kind: str) -> None:
    model = make(self_attention=kind, positions="sinusoidal", window=4)
    state = model.start(model.encode(torch.tensor([[5, 6]]), torch.ones(1, 2, dtype=torch.bool)))
    sizes = set()
    for t in range(30):
        state = model.decode_step(torch.tensor([4]), state).state
        kept = [x for cache in state.caches for x in vars(cache).values() if isinstance(x, Tensor)]
        sizes |= {sum(x.numel() for x in kept)} if t >= 4 else set()
    assert len(sizes) == 1
    assert sizes.pop() <= 4 * 2 * 4 * 4  # w · (key and value) · heads · d_k
