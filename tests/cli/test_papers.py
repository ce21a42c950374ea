"""Experiments named after papers say what the papers say, and train."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch

from translate.cli.arguments import Job, split
from translate.cli.composing import launch
from translate.cli.main import COMMANDS
from translate.models import registry
from translate.training.optim import InverseSqrtConfig
from translate.training.settings import training_problems

SPECIALS = 4  # <pad>, <unk>, <s>, </s>
TRANSFORMER = {
    "tokenizer.kind": "bpe", "tokenizer.joint": True, "tokenizer.vocab_size": 37_000,
    "data.tokens_per_batch": 25_000,
    "model.family": "transformer", "model.encoder_layers": 6, "model.decoder_layers": 6,
    "model.activation": "relu", "model.norm": "post", "model.normalization": "layer",
    "model.positions": "sinusoidal", "model.self_attention": "full", "model.tied_embeddings": "all",
    "model.attention_dropout": 0.0, "model.feed_forward_dropout": 0.0, "model.layer_drop": 0.0,
    "optimizer.kind": "adamw", "optimizer.beta1": 0.9, "optimizer.beta2": 0.98,
    "optimizer.eps": 1e-9, "optimizer.weight_decay": 0.0,
    "schedule.kind": "inverse_sqrt", "schedule.warmup_steps": 4_000,
    "trainer.label_smoothing": 0.1, "trainer.gradient_clip": 0.0, "trainer.averaging.kind": "none",
    "search.kind": "beam", "search.beam_size": 4, "search.length_penalty": "gnmt",
    "search.alpha": 0.6, "search.max_length_ratio": 1.0, "search.max_length_offset": 50,
}  # fmt: skip
RECURRENT = {
    "tokenizer.kind": "word", "tokenizer.joint": False, "data.max_length": 50,
    "model.family": "rnn", "model.tied_embeddings": "none", "model.coverage": "none",
    "trainer.label_smoothing": 0.0, "trainer.averaging.kind": "none",
    "search.kind": "beam", "search.length_penalty": "none",
}  # fmt: skip
PAPERS: dict[str, dict[str, Any]] = {
    "vaswani2017_base": TRANSFORMER | {
        "model.d_model": 512, "model.d_ff": 2_048, "model.num_heads": 8, "model.num_kv_heads": 8,
        "model.dropout": 0.1, "trainer.max_steps": 100_000, "trainer.keep": 5,
    },
    "vaswani2017_big": TRANSFORMER | {
        "model.d_model": 1_024, "model.d_ff": 4_096, "model.num_heads": 16,
        "model.num_kv_heads": 16, "model.dropout": 0.3, "trainer.max_steps": 300_000,
        "trainer.keep": 20,
    },
    "bahdanau2015": RECURRENT | {
        "tokenizer.vocab_size": 30_000 + SPECIALS, "data.tokens_per_batch": 80 * 25,
        "model.cell": "gru", "model.embedding_size": 620, "model.hidden_size": 1_000,
        "model.encoder_size": 1_000 + 1_000, "model.encoder_layers": 1, "model.decoder_layers": 1,
        "model.attention": "additive", "model.attention_size": 1_000, "model.query": "previous",
        "model.input_feeding": False, "model.bridge": "linear", "model.dropout": 0.0,
        "optimizer.kind": "adadelta", "optimizer.learning_rate": 1.0, "optimizer.rho": 0.95,
        "optimizer.eps": 1e-6, "schedule.kind": "constant", "schedule.warmup_steps": 0,
        "trainer.max_steps": 288_000, "trainer.gradient_clip": 1.0,
    },
    "luong2015": RECURRENT | {
        "tokenizer.vocab_size": 50_000 + SPECIALS, "data.tokens_per_batch": 128 * 25,
        "model.cell": "lstm", "model.embedding_size": 1_000, "model.hidden_size": 1_000,
        "model.encoder_size": None, "model.encoder_layers": 4, "model.decoder_layers": 4,
        "model.attention": "dot", "model.local_score": "general",
        "model.window": 10, "model.query": "current", "model.input_feeding": True,
        "model.dropout": 0.2, "optimizer.kind": "sgd", "optimizer.momentum": 0.0,
        "schedule.kind": "halving", "schedule.warmup_steps": 0, "schedule.parts": 12,
        "schedule.kept": 8, "trainer.max_steps": None, "trainer.max_epochs": 12,
    },
}  # fmt: skip
LITTLE = [
    "data=toy", "data.train=300", "data.dev=8", "data.test=8", "data.workers=0",
    "data.tokens_per_batch=600", "search.beam_size=2", "search.max_length_ratio=0.0",
    "search.max_length_offset=5", "trainer.validate_every=1",
    "trainer.validation_sentences=2", "trainer.samples=0", "trainer.accelerator=cpu",
    "trainer.precision=32-true",
]  # fmt: skip
SMALL = {
    "vaswani2017": ["model.d_model=16", "model.d_ff=16", "model.num_heads=2"],
    "bahdanau2015": ["model.embedding_size=16", "model.hidden_size=16", "model.encoder_size=32",
                     "model.attention_size=16"],
    "luong2015": ["model.embedding_size=16", "model.hidden_size=16"],
}  # fmt: skip


def composed(name: str, *more: str) -> dict[str, Any]:
    jobs: list[Job] = []
    given = [f"experiment={name}", "data.source=en", "data.target=de", "data.id=wmt/wmt14", *more]
    launch(COMMANDS["train"], split(COMMANDS["train"].syntax(), given), jobs.append)
    return dict(jobs[0].config)


def value(config: dict[str, Any], key: str) -> Any:
    return reduce(lambda node, name: node[name], key.split("."), config)


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_has_the_figures_of_its_paper(name: str) -> None:
    config = composed(name)
    assert training_problems(config) == []
    assert {key: value(config, key) for key in PAPERS[name]} == PAPERS[name]


@pytest.mark.parametrize("name", PAPERS)
def test_the_whole_corpus_is_read_as_the_papers_do(name: str) -> None:
    cleaning = composed(name)["data"]["cleaning"]
    assert {key: cleaning[key] for key in cleaning if key != "ratio_slack"} == {
        "replace": [], "max_characters": None, "length_ratio": None,
        "drop_identical": False, "drop_duplicates": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["vaswani2017_base", "vaswani2017_big"])
def test_the_rate_of_a_transformer_is_that_of_equation_3(name: str) -> None:
    config = composed(name)
    d_model, total = config["model"]["d_model"], config["trainer"]["max_steps"]
    schedule = InverseSqrtConfig(**config["schedule"])
    for step in (1, 1_000, 4_000, 4_001, 50_000, 100_000):
        rate = d_model**-0.5 * min(step**-0.5, step * 4_000**-1.5)
        found = config["optimizer"]["learning_rate"] * schedule.factor(step - 1, total)
        assert found == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize(("name", "millions"), [("vaswani2017_base", 65), ("vaswani2017_big", 213)])
def test_a_transformer_has_the_parameters_of_table_3(name: str, millions: int) -> None:
    with torch.device("meta"):
        model = registry.build(
            composed(name)["model"], source_vocab_size=37_000, target_vocab_size=37_000
        )
    found = sum(p.numel() for p in model.parameters())  # shared ones once
    assert found / 1e6 == pytest.approx(millions, rel=0.04)


def test_rate_and_norm_of_sums_over_sentences_are_those_of_means_over_tokens() -> None:
    """Luong et al. 2015: 1 and 5, of gradients summed over a sentence's words."""
    config = composed("luong2015")
    words = config["data"]["tokens_per_batch"] / 128
    assert config["optimizer"]["learning_rate"] / words == pytest.approx(1.0)
    assert config["trainer"]["gradient_clip"] * words == pytest.approx(5.0)


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_of_a_paper_trains_and_translates(program: Any, name: str) -> None:
    small = SMALL[name.partition("_")[0]]
    averaged = name == "vaswani2017_base"  # the paper's model is the mean of the last checkpoints
    steps = f"trainer.max_steps={6 if averaged else 2}"
    done = program("train", f"experiment={name}", *LITTLE, steps, *small, "run=run")
    assert done.status == 0, done.err
    run = "run=run"
    if averaged:
        done = program("average", run, "checkpoints=last_5")
        assert done.status == 0, done.err
        assert "2, 3, 4, 5, 6" in done.err
        run = "run=run-last_5"
    done = program("text", run, "workers=1", "guard=none", "die Frau liest", "der Bus")
    assert done.status == 0, done.err
    assert len(done.out.splitlines()) == 2
