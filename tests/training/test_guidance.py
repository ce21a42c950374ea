"""The guided loss against its formula, and what it does to a model that is trained by it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training_runs import numbers

from translate.attention.masks import padding_mask
from translate.data.batching import Batch
from translate.data.corpus import Corpus, prepare, read_nodes
from translate.data.module import TranslationData
from translate.extras.explain import attention_calls
from translate.extras.kernels import recorded_calls
from translate.inference import bundle
from translate.inference.translator import Translator
from translate.models import registry
from translate.models.head import AttentionHead
from translate.models.seq2seq import Seq2Seq
from translate.search import build
from translate.training.objectives import CrossEntropy, Guidance
from translate.training.resources import NONE
from translate.training.run import train
from translate.training.settings import TrainingConfig
from translate.training.step import NOMINAL_TOKENS, TranslationTask

Config = Callable[..., dict[str, Any]]
THREE = ("model.num_heads=2", "model.encoder_layers=3", "model.decoder_layers=3")


def prepared(config: dict[str, Any]) -> Corpus:
    return prepare(*read_nodes(config["data"], config["tokenizer"]), cache=Path(config["cache"]))


def built(config: dict[str, Any], corpus: Corpus) -> Seq2Seq:
    torch.manual_seed(0)
    sizes = {
        "source_vocab_size": len(corpus.tokenizers.source),
        "target_vocab_size": len(corpus.tokenizers.target),
    }
    return registry.build(config["model"], **sizes)


def first_batch(corpus: Corpus) -> Batch:
    data = TranslationData(
        corpus, max_length=100, tokens_per_batch=300, pool_batches=5, workers=0,
        sampling=False, guided=True, seed=1,
    )  # fmt: skip
    return next(iter(data.train_dataloader()))


def task(
    config: dict[str, Any], model: Seq2Seq, *, r_drop: float = 0.0, **guided: Any
) -> TranslationTask:
    options = {"weight": 0.5, "layer": None, "head": 1, **guided}
    trainer = config["trainer"] | {"r_drop": r_drop, "guided_alignment": options}
    nodes = TrainingConfig.model_validate(config | {"trainer": trainer})
    return TranslationTask(model, nodes, compiler=None, packed_from=NONE, total_steps=9)


def test_the_loss_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    alignment = torch.rand(2, 3, 2, 4, 5, dtype=torch.float64, generator=generator).softmax(-1)
    gold = torch.rand(2, 4, 5, dtype=torch.float64, generator=generator)
    gold = gold / gold.sum(-1, keepdim=True)
    gold[0, 1] = gold[1, 2:] = 0  # a word without a link, and padding
    total = 0.0
    for b in range(2):
        for t in range(4):
            if gold[b, t].any():
                for s in range(5):
                    total -= float(gold[b, t, s]) * math.log(float(alignment[b, 1, 0, t, s]))
    actual = Guidance(AttentionHead(2, 1), weight=9.0).loss(alignment, gold)
    assert float(actual) == pytest.approx(total, rel=1e-12)


def test_no_links_and_no_weight_at_a_link_stay_finite() -> None:
    guidance = Guidance(AttentionHead(1, 1), weight=1.0)
    alignment = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 1, 2).requires_grad_()
    assert guidance.loss(alignment, torch.zeros(1, 1, 2)).item() == 0
    outside = guidance.loss(alignment, torch.tensor([[[1.0, 0.0]]]))
    (gradient,) = torch.autograd.grad(outside, alignment)
    assert 80 < float(outside.detach()) < 90
    assert gradient.isfinite().all()


def test_two_passes_for_r_drop_weigh_what_one_does(config: Config) -> None:
    options = config(*THREE, "model.dropout=0.0")
    corpus = prepared(options)
    model = built(options, corpus)
    batch = first_batch(corpus)
    once, twice = (
        task(options, model, r_drop=strength).training_losses(batch) for strength in (0.0, 3.0)
    )
    for name in ("smoothed", "nll", "guided"):
        torch.testing.assert_close(getattr(twice, name), getattr(once, name))


@pytest.mark.parametrize("model", ["transformer", "rnn", "rnn_luong"])
def test_the_gradient_reaches_what_makes_the_attention(config: Config, model: str) -> None:
    options = config(*THREE if model == "transformer" else (), model=model)
    corpus = prepared(options)
    translator = built(options, corpus)
    batch = first_batch(corpus)
    guided = task(options, translator).losses(batch, CrossEntropy(0.0)).guided
    assert guided is not None
    names, parameters = zip(*translator.named_parameters(), strict=True)
    gradients = torch.autograd.grad(guided, parameters, allow_unused=True)
    reached = {n for n, g in zip(names, gradients, strict=True) if g is not None and g.any()}
    makes = {
        "transformer": {"decoder_layers.1.cross_attention.query.weight", "source_embedding.weight"},
        "rnn": {"score.v.weight", "score.W_Q.weight", "score.W_K.weight"},
        "rnn_luong": {"score.W.weight"},
    }[model]
    assert makes <= reached
    if model == "transformer":  # only the guided head of the guided layer learns from it
        gradient = dict(zip(names, gradients, strict=True))[
            "decoder_layers.1.cross_attention.query.weight"
        ]
        assert gradient is not None
        assert gradient[:8].any()
        assert not gradient[8:].any()
        assert not any(name.startswith("decoder_layers.2.") for name in reached)


def test_a_step_learns_the_guided_loss_by_its_weight_for_each_token(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = config(*THREE, "model.dropout=0.0")
    corpus = prepared(options)
    guided = task(options, built(options, corpus), weight=0.25)
    monkeypatch.setattr(guided, "log", lambda *_, **__: None)
    batch = first_batch(corpus)
    parts = guided.losses(batch, CrossEntropy(0.1))
    assert parts.guided is not None
    expected = parts.smoothed + 0.25 * parts.guided
    torch.testing.assert_close(guided.training_step(batch, 0) * NOMINAL_TOKENS, expected)


def mass(model: Seq2Seq, head: AttentionHead, batch: Batch) -> float:
    """The mean weight on gold links."""
    assert batch.gold is not None
    with torch.no_grad():
        mask = padding_mask(batch.source_lengths, batch.source.shape[1])
        memory = model.encode(batch.source, mask)
        decoded = model.decode(batch.target_in, memory, need_alignment=True)
    assert decoded.alignment is not None
    weights: Tensor = head.of(decoded.alignment)
    linked = batch.gold.sum(-1) > 0
    return float((weights * (batch.gold > 0)).sum(-1)[linked].mean())


@pytest.mark.parametrize("model", ["transformer", "rnn", "rnn_luong"])
def test_a_few_steps_put_the_attention_on_gold_links(config: Config, model: str) -> None:
    options = config(*THREE if model == "transformer" else (), "model.dropout=0.0", model=model)
    corpus = prepared(options)
    translator = built(options, corpus)
    guided = task(options, translator, weight=1.0)
    assert guided.guidance is not None
    batch = first_batch(corpus)
    optimizer = torch.optim.Adam(translator.parameters(), lr=0.01)
    before = mass(translator, guided.guidance.head, batch)
    for _ in range(40):
        optimizer.zero_grad()
        loss = guided.losses(batch, CrossEntropy(0.0)).guided
        assert loss is not None
        loss.backward()
        optimizer.step()
    assert mass(translator, guided.guidance.head, batch) > before + 0.1


def test_the_calls_of_a_guided_step_are_those_that_explain_tells(config: Config) -> None:
    options = config(*THREE)
    corpus = prepared(options)
    model = built(options, corpus)
    batch = first_batch(corpus)
    with recorded_calls(model) as ran:
        task(options, model).losses(batch, CrossEntropy(0.0))
    search = build({"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4})
    told = attention_calls(
        Translator(model, corpus.tokenizers, search), "der Hund schläft .", "the dog sleeps .",
        autocast=None, packed_from=NONE, guided=True, covering=False,
    )  # fmt: skip
    kernels = {call.place: call.kernel.name for call in told["training, decode"]}
    assert kernels.pop("decoder_layers.*.cross_attention") == "readable"
    decoding = {call.place for call in ran if call.place.startswith("decoder")}
    assert {re.sub(r"\.\d+\.", ".*.", place) for place in decoding} == set(kernels)


def test_without_weight_no_alignment_is_computed(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from translate.models.transformer import Transformer

    asked: list[bool] = []
    decode = Transformer.decode

    def watched(self: Any, *args: Any, need_alignment: bool = False) -> Any:
        asked.append(need_alignment)
        return decode(self, *args, need_alignment=need_alignment)

    monkeypatch.setattr(Transformer, "decode", watched)
    train(config(*THREE), tmp_path / "run")
    assert not any(asked)
    assert asked


def test_a_guided_run_reports_its_loss_and_resumes_exactly(config: Config, tmp_path: Path) -> None:
    guided = "trainer.guided_alignment.weight=0.5", "schedule=constant"
    train(config(*guided, "trainer.max_steps=4", model="rnn"), tmp_path / "whole")
    for steps in (2, 4):
        options = config(*guided, f"trainer.max_steps={steps}", model="rnn")
        train(options, tmp_path / "broken")
    saved = bundle.load(tmp_path / "broken" / "bundle")
    assert saved.config.taught == AttentionHead(1, 1)  # layer: null asks for the default
    for column in ("train/loss", "train/guided_loss"):
        whole = numbers(tmp_path / "whole", column)
        assert len(whole) == 4
        assert numbers(tmp_path / "broken", column) == whole
    heavier = "trainer.guided_alignment.weight=5.0", "schedule=constant", "trainer.max_steps=1"
    train(config(*heavier, model="rnn"), tmp_path / "heavier")
    assert (
        numbers(tmp_path / "heavier", "train/guided_loss") == whole[:1]
    )  # L_a, without its weight
