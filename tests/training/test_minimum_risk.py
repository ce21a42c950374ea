"""The risk against its formula, spelled out over whole spaces of sentences; and runs with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pytest
import sacrebleu
import torch
from small_models import CONVOLUTIONAL, RNN, TRANSFORMER
from torch import Tensor
from training_runs import numbers

from translate.attention.masks import padding_mask
from translate.cli.train import check
from translate.data.batching import Batch, collate
from translate.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from translate.errors import UserError
from translate.extras.minimum_risk import MinimumRisk
from translate.inference import bundle
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.training.objectives import CrossEntropy
from translate.training.resources import NONE
from translate.training.run import train
from translate.training.settings import MinimumRiskConfig, TrainingConfig
from translate.training.step import NOMINAL_TOKENS, TranslationTask
from translate.vocabulary import BOS, EOS, UNK

Config = Callable[..., dict[str, Any]]
Tokens = tuple[int, ...]
FAMILIES = {
    "transformer": TRANSFORMER,
    "rnn": RNN | {"input_feeding": True},
    "convolutional": CONVOLUTIONAL,
}
TEXTS = ["a b", "b", "a c a"]  # what the sources of `batch` mean: c is not in the vocabulary
LONGEST = 2  # tokens of a sample


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(
        ["a b", "b a"], kind="word", vocab_size=100, hard_vocab_limit=False, byte_fallback=False,
        character_coverage=1.0, normalization="identity", train_sentences=10, seed=1,
    )  # fmt: skip


def built(family: str) -> Seq2Seq:
    torch.manual_seed(2)
    options = FAMILIES[family] | {"tied_embeddings": "none"}
    return registry.build(options, source_vocab_size=9, target_vocab_size=6)


@pytest.fixture
def batch(tokenizer: Tokenizer) -> Batch:
    sources = [np.array(ids, dtype=np.int32) for ids in ([4, 5, 6, 7], [8], [7, 4])]
    targets = [np.array(tokenizer.encode(text), dtype=np.int32) for text in TEXTS]
    return collate([2, 0, 1], sources, targets)


def at(batch: Batch, sentences: list[int]) -> Batch:
    """These of its sentences."""
    parts = batch._asdict().items()
    return batch._replace(**{n: part[sentences] for n, part in parts if isinstance(part, Tensor)})


@pytest.fixture
def new_risk(tokenizer: Tokenizer) -> Callable[..., MinimumRisk]:
    def new(*, seed: int = 3, longest: int = LONGEST, **changes: Any) -> MinimumRisk:
        by_pair = pyarrow.table({"target": [TEXTS[1], TEXTS[2], TEXTS[0]], "other": [1, 2, 3]})
        options = {
            "weight": 0.5, "candidates": 8, "temperature": 1.0, "sharpness": 0.5, "metric": "chrf",
            "include_reference": True,
        }  # fmt: skip
        return MinimumRisk(
            MinimumRiskConfig(**options | changes), seed=seed, tokenizer=tokenizer,
            references=by_pair,
            limits={"max_length_ratio": 0.0, "max_length_offset": longest},
        )  # fmt: skip

    return new


def samples(risk: MinimumRisk, model: Seq2Seq, batch: Batch, *, step: int) -> list[list[Tokens]]:
    mask = padding_mask(batch.source_lengths, batch.source.shape[1])
    return risk.draw(model, batch.source, mask, step=step)


def log_prob(model: Seq2Seq, source: list[int], tokens: Tokens) -> Tensor:
    """One token after another, each from the whole prefix, one sentence at a time."""
    x = torch.tensor([source])
    memory = model.encode(x, torch.ones_like(x, dtype=torch.bool))
    total = torch.zeros((), dtype=torch.float64)
    for t, token in enumerate((*tokens, EOS)):
        prefix = torch.tensor([[BOS, *tokens[:t]]])
        hidden = model.decode(prefix, memory).hidden
        total = total + model.project(hidden[0, -1]).log_softmax(-1)[token]
    return total


def delta(metric: str, text: str, reference: str) -> float:
    if metric == "bleu":
        return 1 - sacrebleu.sentence_bleu(text, [reference], use_effective_order=True).score / 100
    return 1 - sacrebleu.sentence_chrf(text, [reference]).score / 100


def slow_risk(
    model: Seq2Seq, source: list[int], candidates: set[Tokens], costs: dict[Tokens, float],
    sharpness: float,
) -> Tensor:  # fmt: skip
    """Σ P^α Δ / Σ P^α, as eq. 11 and 12 have it."""
    above = below = torch.zeros((), dtype=torch.float64)
    for tokens in candidates:
        p = log_prob(model, source, tokens).exp() ** sharpness
        above, below = above + p * costs[tokens], below + p
    return above / below


def sentences(batch: Batch) -> list[tuple[list[int], Tokens]]:
    """Source and target of each."""
    return [
        (source[:s], tuple(target[: t - 1]))
        for source, s, target, t in zip(
            batch.source.tolist(), batch.source_lengths.tolist(),
            batch.target_out.tolist(), batch.target_lengths.tolist(), strict=True,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "metric", "sharpness", "reference"),
    [("transformer", "chrf", 0.5, True), ("convolutional", "chrf", 0.1, False),
     ("rnn", "bleu", 1.0, True)],
)  # fmt: skip
def test_risk_and_gradient_are_the_formula(
    batch: Batch, new_risk: Callable[..., MinimumRisk], tokenizer: Tokenizer,
    family: str, metric: str, sharpness: float, reference: bool,
) -> None:  # fmt: skip
    model = built(family).double().eval()
    risk = new_risk(metric=metric, sharpness=sharpness, include_reference=reference)
    drawn = samples(risk, model, batch, step=7)
    assert len({len(set(own)) for own in drawn}) > 1  # the one source has more than the other
    actual = risk(model, batch, step=7)
    expected, of_samples = [], []
    for (source, target), own, text in zip(sentences(batch), drawn, TEXTS, strict=True):
        candidates = {*own, target} if reference else set(own)
        costs = {y: delta(metric, tokenizer.decode(y), text) for y in candidates}
        expected.append(slow_risk(model, source, candidates, costs, sharpness))
        of_samples += [100 - 100 * costs[y] for y in own]
    torch.testing.assert_close(actual.of_sentences, torch.stack(expected), rtol=1e-10, atol=0)
    assert actual.score == pytest.approx(sum(of_samples) / len(of_samples))
    parameters = list(model.parameters())
    mine, theirs = (
        torch.autograd.grad(sum(values), parameters, allow_unused=True)
        for values in (actual.of_sentences.unbind(), expected)
    )
    for one, other in zip(mine, theirs, strict=True):
        if other is not None:
            assert one is not None
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-14)


def expectation(model: Seq2Seq, source: list[int], text: str, tokenizer: Tokenizer) -> Tensor:
    """The risk over every sentence there is."""
    words = (UNK, *(tokenizer.encode(word)[0] for word in "ab"))
    space = {y for n in range(LONGEST + 1) for y in itertools.product(words, repeat=n)}
    costs = {y: delta("chrf", tokenizer.decode(y), text) for y in space}
    return slow_risk(model, source, space, costs, 1.0)


def test_all_sentences_as_candidates_are_the_expectation(
    batch: Batch, new_risk: Callable[..., MinimumRisk], tokenizer: Tokenizer
) -> None:
    model = built("rnn").double().eval()
    risk = new_risk(candidates=150, sharpness=1.0, include_reference=False)
    assert {len(set(own)) for own in samples(risk, model, batch, step=0)} == {1 + 3 + 9}
    actual = risk(model, batch, step=0).of_sentences.detach()
    expected = [
        float(expectation(model, source, text, tokenizer).detach())
        for (source, _), text in zip(sentences(batch), TEXTS, strict=True)
    ]
    assert actual.tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_hang_on_seed_step_and_source_alone(
    batch: Batch, new_risk: Callable[..., MinimumRisk], family: str
) -> None:
    model = built(family).double().train()
    risk = new_risk(longest=9)
    torch.manual_seed(1)
    drawn = samples(risk, model, batch, step=4)
    assert model.training
    turned = at(batch, [2, 1])  # and without the first
    torch.manual_seed(2)  # of dropout, if there were any
    assert samples(risk, model, turned, step=4) == drawn[:0:-1]
    assert samples(risk, model, batch, step=5) != drawn
    assert samples(new_risk(seed=4, longest=9), model, batch, step=4) != drawn


def test_what_learns_keeps_its_gradient_under_autocast(
    batch: Batch, new_risk: Callable[..., MinimumRisk]
) -> None:
    """The samples are drawn without one, and autocast remembers the weights that it has rounded."""
    model = built("transformer")
    with torch.autocast("cpu", torch.bfloat16):
        risk = new_risk()(model, batch, step=0)
    assert risk.of_sentences.dtype == torch.float32
    gradients = torch.autograd.grad(
        risk.of_sentences.sum(), list(model.parameters()), allow_unused=True
    )
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_parts_of_a_batch_add_up_to_its_loss(
    batch: Batch, new_risk: Callable[..., MinimumRisk]
) -> None:
    model = built("rnn").double().eval()
    risk = new_risk(weight=0.3)

    def loss(part: Batch) -> Tensor:
        tokens = part.target_lengths.sum()
        return risk.mixed(2.0 * tokens, risk(model, part, step=0), part.target_lengths)

    parts = [at(batch, [0]), at(batch, [1, 2])]
    torch.testing.assert_close(loss(parts[0]) + loss(parts[1]), loss(batch))
    values, lengths = risk(model, batch, step=0).of_sentences.detach(), batch.target_lengths
    by_hand = sum(
        n * (0.7 * 2.0 + 0.3 * value)
        for n, value in zip(lengths.tolist(), values.tolist(), strict=True)
    )
    assert float(loss(batch).detach()) == pytest.approx(by_hand)


def test_a_step_learns_the_risk_too(
    batch: Batch, new_risk: Callable[..., MinimumRisk], config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model, risk = built("rnn"), new_risk(weight=0.3)
    options = TrainingConfig.model_validate(config())
    task = TranslationTask(
        model, options, compiler=None, packed_from=NONE, total_steps=9, mix=risk.mix
    ).eval()  # fmt: skip
    monkeypatch.setattr(TranslationTask, "trainer", SimpleNamespace(global_step=3))
    monkeypatch.setattr(task, "log", lambda *_, **__: None)
    tokens = task.losses(batch, CrossEntropy(0.1)).smoothed
    expected = risk.mixed(tokens, risk(model, batch, step=3), batch.target_lengths)
    torch.testing.assert_close(task.training_step(batch, 0) * NOMINAL_TOKENS, expected)


TUNED = (
    "trainer.minimum_risk.weight=0.5", "trainer.minimum_risk.candidates=3",
    "trainer.minimum_risk.include_reference=true", "trainer.minimum_risk.temperature=1.0",
    "search.max_length_ratio=0.0", "search.max_length_offset=3", "schedule=constant",
    "model.encoder_layers=1", "model.decoder_layers=1",
)  # fmt: skip


def untrained(config: dict[str, Any], folder: Path) -> Path:
    """A bundle to begin from."""
    vocabulary = train_tokenizer(
        ["der Hund sieht", "the dog sees"], kind="word", vocab_size=100, hard_vocab_limit=False,
        byte_fallback=False, character_coverage=1.0, normalization="identity", train_sentences=10,
        seed=1,
    )  # fmt: skip
    torch.manual_seed(6)
    node = config["model"]
    sizes = {"source_vocab_size": len(vocabulary), "target_vocab_size": len(vocabulary)}
    bundle.save(
        folder, node=node,
        model=registry.build(node, **sizes), tokenizers=Tokenizers(vocabulary, vocabulary),
        languages=("de", "en"), extra={}, search=config["search"],
    )  # fmt: skip
    return folder


def test_a_run_reports_its_risk_and_resumes_exactly(config: Config, tmp_path: Path) -> None:
    tuned = (*TUNED, "trainer.minimum_risk.candidates=6")  # of fewer none has a word that is right
    origin = str(untrained(config(*tuned), tmp_path / "origin"))
    train(config(*tuned, "trainer.max_steps=2"), tmp_path / "whole", init=origin)
    for steps in (1, 2):
        train(config(*tuned, f"trainer.max_steps={steps}"), tmp_path / "broken", init=origin)
    for name, most in (("train/loss", 10), ("train/risk", 1), ("train/sampled_score", 100)):
        whole = numbers(tmp_path / "whole", name)
        assert len(whole) == 2
        assert all(0 <= number < most for number in whole)
        assert numbers(tmp_path / "broken", name) == whole


def test_random_weights_are_refused_and_so_is_a_measured_budget(
    config: Config, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"weight = 0\.5 learns from .* with init=PATH") as error:
        train(config(*TUNED), tmp_path / "run")
    assert "random weights sample noise" in str(error.value)
    assert not (tmp_path / "run" / "provenance.json").exists()
    (problem,) = check(config(*TUNED, "data.tokens_per_batch=auto"))
    assert "tokens_per_batch = auto does not allow for the candidates" in problem
    assert "candidates (3)" in problem
    wrong = ("weight=1.5", "candidates=1", "temperature=0", "sharpness=0", "metric=ter")
    found = check(config(*(f"trainer.minimum_risk.{change}" for change in wrong)))
    assert [line.split(" = ")[0] for line in found] == [
        f"trainer.minimum_risk.{change.partition('=')[0]}" for change in wrong
    ]
