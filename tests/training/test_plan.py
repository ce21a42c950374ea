"""What a run tells of itself before it begins is what then happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from translate.data.corpus import prepare, read_nodes
from translate.data.module import TranslationData
from translate.models import registry
from translate.training import preflight
from translate.training.preflight import SLACK
from translate.training.settings import TrainingConfig

Config = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(("pool_batches", "tolerance"), [(100, 0.05), (5, 3.0)])
def test_the_way_through_the_corpus_and_what_memory_and_disk_hold(
    config: Config, monkeypatch: pytest.MonkeyPatch, pool_batches: int, tolerance: float
) -> None:
    settings = config("trainer.accumulate=2", "trainer.keep=4")
    corpus = prepare(
        *read_nodes(settings["data"], settings["tokenizer"]), cache=Path(settings["cache"])
    )
    data = TranslationData(
        corpus, max_length=settings["data"]["max_length"], tokens_per_batch=300,
        pool_batches=pool_batches, workers=0, sampling=False, guided=False, seed=1,
    )  # fmt: skip
    pieces = len(corpus.tokenizers.source)
    model = registry.build(
        settings["model"], source_vocab_size=pieces, target_vocab_size=pieces
    )  # fmt: skip

    def told(data: TranslationData, *, warmup_steps: int = 29, **schedule: Any) -> str:
        node = {"kind": "constant", "warmup_steps": warmup_steps}
        return preflight.plan(
            TrainingConfig.model_validate(settings | {"schedule": node | schedule}),
            Path("runs/mine"), model, data,
            steps=30, processes=3, precision="32-true", resuming=False,
        )  # fmt: skip

    text = told(data)
    assert text.count("\n") == 2
    assert told(data, warmup_steps=30) == (
        f"{text}\nthe learning rate never stops rising: schedule.warmup_steps = 30 of 30 "
        "steps; use fewer, or train longer"
    )
    assert told(data, kind="halving", parts=4, kept=3) == text
    assert told(data, kind="halving", parts=4, kept=4) == (
        f"{text}\nthe learning rate is never halved: schedule.kept = 4 of schedule.parts = 4; keep "
        "fewer, or make more parts"
    )
    count = sum(p.numel() for p in model.parameters())
    assert text.startswith(
        f"training runs/mine: {count:,} parameters, 300 training pairs, 30 steps of at most 1,800 "
        "tokens per side, 32-true, 3 processes\n"
    )
    numbers = re.search(
        r"an epoch is ([\d,]+) source and ([\d,]+) target tokens, about ([\d.]+) steps; "
        r"the run passes over the corpus ([\d.]+) times\n"
        r"memory (\d+) MB plus activations, in each process; disk (\d+) MB",
        text,
    )
    assert numbers is not None
    source, target, steps, times, memory, disk = (
        float(n.replace(",", "")) for n in numbers.groups()
    )
    assert source == sum(map(len, corpus.train["source_ids"].to_pylist())) + len(corpus.train)
    assert target == sum(map(len, corpus.train["target_ids"].to_pylist())) + len(corpus.train)
    batches = sum(1 for _ in data.batches().epoch(0))
    assert steps == pytest.approx(batches / (2 * 3), abs=1)
    assert times == pytest.approx(30 / (batches / 6), abs=tolerance)
    weights = 4 * count
    assert memory == round(weights * (1 + 1 + 2 + 1) / 1e6)  # gradient, AdamW's two, the average
    assert disk == round(((3 + 4) * 4 * weights + 2 * weights + SLACK) / 1e6)
    monkeypatch.setattr(preflight, "readable", str)
    settings["trainer"]["strategy"] = "fsdp"
    shared = weights * (1 + 1 + 2 + 1) // 3 + weights  # of three processes; whole, to validate with
    assert f"memory {shared} plus activations" in told(data)
    data.max_length = 10
    del data.mixture  # which was found for the other length
    longest = (max(map(len, pair)) for pair in zip(*(corpus.train[f"{side}_ids"]
               for side in ("source", "target")), strict=True))  # fmt: skip
    left_out = sum(length > 10 for length in longest)
    assert 0 < left_out < 300
    assert (
        f" {300 - left_out} training pairs ({left_out} longer than data.max_length = 10 pieces are "
        "left out), 30 steps"
    ) in told(data)
