"""Products in int8: near those of float32, and the same among any others."""

from __future__ import annotations

import copy
import warnings
from random import Random

import pytest
import torch
from small_models import MODELS

import translate
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.extras.int8 import ENGINE, Quantized, quantize
from translate.inference.bundle import of_run
from translate.inference.translator import Translator
from translate.linear import Linear, prepack
from translate.models import registry
from translate.search import build

pytestmark = pytest.mark.skipif(
    ENGINE not in torch.backends.quantized.supported_engines, reason="PyTorch has no FBGEMM here"
)
BUNDLE = "tests/bundles/transformer"
WIDE = {  # sides that are quantized
    "d_model": 128, "d_ff": 96, "embedding_size": 48, "hidden_size": 48, "attention_size": 40,
    "encoder_size": None,
}  # fmt: skip
FAMILIES = (
    "transformer", "transformer-rotary-grouped", "transformer-relative", "rnn-additive",
    "rnn-coverage",
)  # fmt: skip


@pytest.fixture
def layer() -> Linear:
    torch.manual_seed(0)
    layer = Linear(96, 200).eval()
    prepack(layer, Quantized.of)
    return layer


@torch.no_grad()
def test_products_are_near_and_do_not_depend_on_other_rows() -> None:
    torch.manual_seed(0)
    exact = Linear(96, 200).eval()
    layer = copy.deepcopy(exact)
    prepack(layer, Quantized.of)
    x = torch.randn(5, 67, 96) * torch.randn(96).exp()  # some inputs are large, as in models
    together = layer(x)
    error = (together - exact(x)).norm() / exact(x).norm()
    assert 0 < error < 0.03
    for rows in (1, 2, 17, 64):
        assert torch.equal(layer(x[:, :rows]), together[:, :rows])
        assert torch.equal(layer(1e-20 * x[:1, :rows]), layer(1e-20 * x[:1])[:, :rows])
    without = Linear(96, 200, bias=False).eval()
    without.weight.data = exact.weight.data
    prepack(without, Quantized.of)
    torch.testing.assert_close(without(x), together - exact.bias, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_nothing_overflows_and_what_is_no_number_shows(layer: Linear) -> None:
    ones = Linear(4096, 32).eval()
    torch.nn.init.ones_(ones.weight)
    torch.nn.init.zeros_(ones.bias)
    prepack(ones, Quantized.of)
    assert torch.equal(ones(torch.ones(3, 4096)), torch.full((3, 32), 4096.0))
    torch.testing.assert_close(layer(torch.zeros(2, 96)), layer.bias.expand(2, -1))
    x = torch.randn(3, 96)
    x[0, 5], x[2, 7] = torch.nan, torch.inf
    assert layer(x).isfinite().all(-1).tolist() == [False, True, False]


@torch.no_grad()
def test_small_matrices_stay_as_they_are() -> None:
    layer = Linear(96, 31).eval()
    x = torch.randn(3, 96)
    before = layer(x)
    prepack(layer, Quantized.of)
    torch.testing.assert_close(layer(x), before)


def memory(model: torch.nn.Module) -> int:
    tensors = {each.untyped_storage().data_ptr(): each for each in model.parameters()}
    return sum(each.untyped_storage().nbytes() for each in tensors.values())


def test_a_model_gives_its_weights_back(joint: Tokenizers) -> None:
    options = MODELS["transformer"] | {key: WIDE[key] for key in ("d_model", "d_ff")}
    model = registry.build(options, source_vocab_size=60, target_vocab_size=60).eval()
    before = memory(model)
    quantize(model)
    assert memory(model) < before / 4
    assert model.source_embedding.weight.isfinite().all()
    assert model.output.weight is model.target_embedding.weight
    assert model.decoder_layers[0].feed_forward.inner.weight.isnan().all()


@pytest.mark.parametrize("name", FAMILIES)
def test_no_text_depends_on_its_batch(joint: Tokenizers, name: str) -> None:
    torch.manual_seed(7)
    size = len(joint.source)
    known = MODELS[name]
    options = known | {key: value for key, value in WIDE.items() if key in known}
    model = registry.build(options, source_vocab_size=size, target_vocab_size=size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # peaked, so that translations are varied
    words, chance = ["el", "la", "tren", "casa", "perro", "come", "azul", "rojo"], Random(1)
    lines = [" ".join(chance.choices(words, k=chance.randint(1, 17))) for _ in range(30)]
    limits = {"max_length_ratio": 1.0, "max_length_offset": 4}
    translator = Translator(model, joint, build({"kind": "greedy", **limits}))
    found = []
    for tokens in (10**6, 1, 100, 10**6):
        translator.tokens_per_batch = tokens
        found.append([(best.text, best.log_prob) for best, *_ in translator.stream(lines)])
        if len(found) == 1:
            quantize(model)
    exact, *others = found
    texts = [[text for text, _ in one] for one in others]
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[0])) > 5
    assert others[0] != exact
    if name.startswith("transformer"):  # to the bit; others read the source in float32
        assert others[0] == others[1] == others[2]


@pytest.mark.parametrize("run", ["transformer", "rnn_luong", "convolutional"])
def test_a_bundle_is_read_in_int8_and_stays_as_it_was(run: str) -> None:
    bundle = of_run(f"tests/bundles/{run}")
    plain = translate.load(bundle, device="cpu")
    lines = ["der Hund schläft .", "eine alte Katze sieht den Hund ."]
    before, scores = plain.translate(lines), plain.score(lines, ["the dog sleeps .", "a cat ."])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch's word on quantized tensors is not for users
        small = translate.load(bundle, device="cpu", precision="int8", workers=2)
    assert len(small.translate(lines)) == 2
    near = small.score(lines, ["the dog sleeps .", "a cat ."])
    for one, other in zip(near, scores, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, rel=0.1, abs=0.5)
    assert plain.translate(lines) == before


def test_where_it_cannot_be_a_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = of_run(BUNDLE)
    monkeypatch.setattr("translate.extras.int8.ENGINE", "another")
    with pytest.raises(UserError, match=r"int8 needs an x86 processor with AVX2"):
        translate.load(bundle, device="cpu", precision="int8")
