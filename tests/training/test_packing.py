"""Sentences end to end: the same losses and gradients as padded, and chosen where it can be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from translate.data.batching import Batch, collate
from translate.errors import UserError
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.training import resources
from translate.training.objectives import CrossEntropy
from translate.training.resources import ALL, LONG, NONE
from translate.training.run import train
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]
HEADS = "model.num_heads=2"  # of 8 dimensions, the fewest that flash attention takes


def network(config: dict[str, Any]) -> Seq2Seq:
    torch.manual_seed(0)
    return registry.build(config["model"], source_vocab_size=30, target_vocab_size=30)


def batch(*lengths: tuple[int, int]) -> Batch:
    random = np.random.default_rng(len(lengths))
    sides = [
        [random.integers(4, 30, size=pair[side]).astype(np.int32) for pair in lengths]
        for side in (0, 1)
    ]
    return collate(list(range(len(lengths))), *sides)


def losses(
    model: Seq2Seq, of: Batch, *, packed_from: int, r_drop: float = 0.0
) -> list[torch.Tensor]:
    """Both losses and the gradients, means over the tokens as a step takes them."""
    unused: Any = None
    task = TranslationTask(
        model, label_smoothing=0.1, r_drop=r_drop, word_dropout=0.0, compiler=None,
        packed_from=packed_from, guidance=None, optimizer=unused,
        schedule=unused, total_steps=1, seed=1,
    ).train()  # fmt: skip
    torch.manual_seed(0)
    sums = task.training_losses(of) if r_drop else task.losses(of, CrossEntropy(0.1))
    gradients = torch.autograd.grad(sums.smoothed, list(model.parameters()), allow_unused=True)
    found = [sums.smoothed.detach(), sums.nll, *(g for g in gradients if g is not None)]
    return [each / of.target_lengths.sum() for each in found]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("model.positions=rotary", "model.num_kv_heads=1", "model.activation=swiglu"),
        ("model.positions=learned", "model.norm=post", "model.tied_embeddings=none"),
        ("model.positions=none", "model.normalization=rms"),
        ("model.layer_drop=0.5",),
    ],
    ids=["default", "rotary-grouped", "learned-post", "unordered-rms", "layer-drop"],
)
def test_packed_equals_padded(config: Config, options: tuple[str, ...], dtype) -> None:
    model = network(config("model.dropout=0.0", HEADS, *options, model="transformer")).to(dtype)
    of = batch((5, 3), (1, 7), (9, 1), (5, 5))
    exact = 1e-10 if dtype == torch.float64 else 1e-6
    ours, theirs = (losses(model, of, packed_from=which) for which in (ALL, NONE))
    for packed, padded in zip(ours, theirs, strict=True):
        torch.testing.assert_close(packed, padded, rtol=exact, atol=exact)


def test_packed_equals_padded_with_two_passes(config: Config) -> None:
    model = network(config("model.dropout=0.0", HEADS, model="transformer")).double()
    of = batch((5, 3), (2, 6))
    ours, theirs = (losses(model, of, packed_from=which, r_drop=1.0) for which in (ALL, NONE))
    for packed, padded in zip(ours, theirs, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-10, atol=1e-10)


def test_each_batch_is_packed_or_padded_by_its_longest_sentence(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(config(HEADS, model="transformer"))
    read_packed, packed = model.read_packed, []
    monkeypatch.setattr(model, "read_packed", lambda *a: packed.append(a[2]) or read_packed(*a))
    for longest in (6, 7, 8):  # tokens, with </s> or <s>
        losses(model, batch((3, 2), (2, longest - 1)), packed_from=7)
    assert [sources.total for sources in packed] == [7, 7]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("model.positions=alibi",), "model.positions=alibi"),
        (("model.self_attention=linear",), "model.self_attention=linear"),
        (("model.attention_dropout=0.1",), "model.attention_dropout=0.1"),
        (("model.d_model=20", "model.num_heads=2"), "a head has 10 dimensions"),
        (("model.d_v=16",), "model.d_v=16, but flash attention needs values of the same"),
    ],
)
def test_what_flash_cannot_compute_stays_padded(
    config: Config, options: tuple[str, ...], reason: str
) -> None:
    model = network(config(HEADS, *options, model="transformer"))
    assert model.why_padded is not None
    assert model.why_padded.startswith(reason)
    with pytest.raises(UserError, match="trainer.packing = on, but " + reason):
        chosen("on", model)


def chosen(choice: Any, model: Seq2Seq, **settings: Any) -> int:
    here = {
        "accelerator": "gpu",
        "precision": "bf16-mixed",
        "guided": False,
        "compiled": False,
        **settings,
    }
    return resources.packed_from(choice, model, **here)


def test_auto_takes_it_where_flash_attention_is(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = network(config(HEADS, model="transformer"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert chosen("auto", model) == LONG
    assert (
        "packed, without padding, in batches whose longest sentence has 128 tokens" in caplog.text
    )
    assert chosen("off", model) == NONE
    assert chosen("auto", model, accelerator="cpu") == NONE
    assert "padded: on a CPU, attention would process packed sentences one by one" in caplog.text
    assert chosen("auto", model, precision="32-true") == NONE
    assert "padded: trainer.precision=32-true" in caplog.text
    assert chosen("auto", model, guided=True) == NONE
    assert chosen("auto", model, compiled=True) == NONE
    assert "padded: trainer.compile compiles programs for padded batches" in caplog.text
    assert chosen("auto", network(config(model="rnn"))) == NONE
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert chosen("auto", model, precision="16-mixed") == NONE
    with pytest.raises(UserError, match=r"trainer\.packing = on, but flash attention needs a GPU"):
        chosen("on", model, precision="16-mixed")
    assert chosen("on", model, precision="32-true") == ALL  # sentence by sentence
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen("auto", model) == NONE
    assert chosen("on", model) == ALL


def test_a_run_can_be_trained_packed(config: Config, tmp_path: Path) -> None:
    options = config("trainer.packing=on", "trainer.max_steps=2", HEADS, model="transformer")
    train(options, tmp_path / "run")
    assert (tmp_path / "run" / "bundle").is_dir()
