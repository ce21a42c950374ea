"""What `auto` stands for: number format, packing, tokens of a batch; and compiled programs."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from translate.data.batching import Batch, collate
from translate.errors import UserError
from translate.extras import compilation, token_budget
from translate.extras.compilation import Compiler, check_compiler
from translate.extras.token_budget import rows_that_fit
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.training import records, resources
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.objectives import CrossEntropy
from translate.training.resources import (
    ALL,
    LONG,
    NONE,
    chosen_precision,
    lightning_name,
    multiply_in,
)
from translate.training.run import TrainingRun, train
from translate.training.settings import TrainerConfig, TrainingConfig
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
CPU = "trainer.accelerator=cpu"


def new_task(config: dict[str, Any], model: Seq2Seq, **options: Any) -> TranslationTask:
    nodes = TrainingConfig.model_validate(config)
    defaults = {"compiler": None, "packed_from": NONE, "total_steps": 9}
    return TranslationTask(model, nodes, **defaults | options).train()


def network(config: dict[str, Any]) -> Seq2Seq:
    torch.manual_seed(0)
    return registry.build(config["model"], source_vocab_size=30, target_vocab_size=30)


# Compiled programs

PROGRAMS = 2  # for a batch and for a lone sentence
SMALL = ["model.dropout=0.0", "model.encoder_layers=1", "model.decoder_layers=1"]
compiling = pytest.mark.skipif(shutil.which("g++") is None, reason="it takes a C++ compiler")


def python(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def programs(config: dict[str, Any], backend: str, *, exact: float) -> int:
    """How many it takes to read batches of many shapes as the model itself does."""
    twin = str(Path(__file__).with_name("compiled_and_eager.py"))
    return int(python(twin, json.dumps(config), backend, str(exact)).stdout)


def test_two_programs_read_batches_of_every_shape(config: Config) -> None:
    assert programs(config(*SMALL), "eager", exact=0.0) == PROGRAMS


@pytest.mark.soak
@compiling
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("transformer", []),
        ("transformer", ["trainer.activation_checkpointing=true"]),
        ("transformer", ["model.positions=rotary", "model.num_kv_heads=1"]),
        ("transformer", ["model.positions=relative", "model.self_attention=sliding_window"]),
        ("transformer", ["model.positions=alibi", "model.self_attention=strided"]),
        ("transformer", ["model.self_attention=linear", "model.norm=post"]),
        ("convolutional", []),
    ],
)
def test_a_compiled_model_learns_the_same(config: Config, model: str, more: list[str]) -> None:
    assert programs(config(*SMALL, *more, model=model), "inductor", exact=1e-5) == PROGRAMS


@pytest.mark.soak
@compiling
def test_a_compiled_run_goes_on(overrides: Callable[..., list[str]], tmp_path: Path) -> None:
    tiny = overrides(*SMALL, "trainer.compile=true", "trainer.averaging.kind=none")
    options = [each for each in tiny if each != "trainer.averaging.every=2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = ["-m", "translate", "train"]
    done = python(*command, f"run={whole}", *options)
    assert "trainer.compile: 1 program read all batches" in done.stderr
    python(*command, f"run={broken}", *options, "trainer.max_steps=5")
    python(*command, f"run={broken}", *options)
    weights, expected = (
        AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
        for run in (broken, whole)
    )
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-4, atol=1e-5)


def test_training_is_compiled_and_validation_is_not(config: Config) -> None:
    calls = []

    def compiler(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *batch, **options: calls.append(batch) or read(*batch, **options)

    of = batch((3, 3))
    task = new_task(config(), network(config(*SMALL)), compiler=compiler)
    task.training_losses(of)
    assert len(calls) == 1
    task.eval().losses(of, CrossEntropy(0.0))
    assert len(calls) == 1


def by_value(*batch: Any, need_alignment: bool) -> Any:
    return batch[0] if batch[0].sum() > 0 else None


def by_width(*batch: Any, need_alignment: bool) -> Any:
    """As PyTorch's compiler makes of convolutions on some processors."""
    return batch[0] * batch[0].shape[1] if batch[0].shape[1] == 3 else batch[0]


@pytest.mark.parametrize("read", [by_value, by_width])
def test_what_cannot_be_compiled_is_told(read: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"cannot compile this model \(.+\): set it to false"):
        Compiler("eager")(read)(torch.ones(2, 3), need_alignment=False)


def test_every_run_of_a_sweep_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """All compile one function, whose programs PyTorch counts together."""
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 3)

    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def read(self, *batch: Any, need_alignment: bool) -> Any:
            return batch[0] * self.factor

    for factor in range(5):
        compiler = Compiler("eager")
        product = compiler(Model(factor).read)(torch.ones(2, 3), need_alignment=False)
        assert (float(product.sum()), compiler.programs) == (6 * factor, 1)


def test_without_a_compiler_it_is_refused_before_anything_is_read(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no working C++ compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", fail)
    message = r"compile = true, but .*\(no working C\+\+ compiler\): install a C\+\+ compiler"
    with pytest.raises(UserError, match=message):
        check_compiler("cpu")
    with pytest.raises(UserError, match=message):
        train(config("trainer.compile=true"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


# Packed sentences

HEADS = "model.num_heads=2"  # of 8 dimensions, the fewest that flash attention takes


def batch(*lengths: tuple[int, int]) -> Batch:
    random = np.random.default_rng(len(lengths))
    sides = [
        [random.integers(4, 30, size=pair[side]).astype(np.int32) for pair in lengths]
        for side in (0, 1)
    ]
    return collate(list(range(len(lengths))), *sides)


def losses(config: dict[str, Any], model: Seq2Seq, of: Batch, *, packed_from: int) -> list[Tensor]:
    """Both losses and the gradients, means over the tokens as a step takes them."""
    task = new_task(config, model, packed_from=packed_from)
    torch.manual_seed(0)
    sums = task.training_losses(of)
    gradients = torch.autograd.grad(sums.smoothed, list(model.parameters()), allow_unused=True)
    numbers = [sums.smoothed.detach(), sums.nll, *(g for g in gradients if g is not None)]
    return [each / of.target_lengths.sum() for each in numbers]


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ((), torch.float64),
        ((), torch.float32),
        (("trainer.r_drop=1",), torch.float64),
        (("model.positions=rotary", "model.num_kv_heads=1", "model.activation=swiglu"),
         torch.float64),
        (("model.positions=learned", "model.norm=post", "model.tied_embeddings=none"),
         torch.float64),
        (("model.positions=none", "model.normalization=rms"), torch.float64),
        (("model.layer_drop=0.5",), torch.float64),
    ],
    ids=["default", "float32", "two-passes", "rotary", "learned", "unordered", "layer-drop"],
)  # fmt: skip
def test_packed_equals_padded(config: Config, options: tuple[str, ...], dtype: torch.dtype) -> None:
    settings = config("model.dropout=0.0", HEADS, *options)
    model = network(settings).to(dtype)
    of = batch((5, 3), (1, 7), (9, 1), (5, 5))
    exact = 1e-10 if dtype == torch.float64 else 1e-6
    ours, theirs = (losses(settings, model, of, packed_from=which) for which in (ALL, NONE))
    for packed, padded in zip(ours, theirs, strict=True):
        torch.testing.assert_close(packed, padded, rtol=exact, atol=exact)


def test_each_batch_is_packed_or_padded_by_its_longest_sentence(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(config(HEADS))
    read_packed, packed = model.read_packed, []
    monkeypatch.setattr(model, "read_packed", lambda *a: packed.append(a[2]) or read_packed(*a))
    for longest in (6, 7, 8):  # tokens, with </s> or <s>
        losses(config(), model, batch((3, 2), (2, longest - 1)), packed_from=7)
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
    model = network(config(HEADS, *options))
    assert model.why_padded is not None
    assert model.why_padded.startswith(reason)
    with pytest.raises(UserError, match="trainer.packing = on, but " + reason):
        packed_from("on", model)


def packed_from(choice: Any, model: Seq2Seq, **settings: Any) -> int:
    here = {"accelerator": "gpu", "precision": "bf16-mixed", "guided": False, "compiled": False}
    return resources.packed_from(choice, model, **here | settings)


def test_auto_packs_where_flash_attention_is(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = network(config(HEADS))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert packed_from("auto", model) == LONG
    assert "packed, without padding, in batches whose longest sentence has 128" in caplog.text
    assert packed_from("off", model) == NONE
    assert packed_from("auto", network(config(model="rnn"))) == NONE
    for settings in (
        {"accelerator": "cpu"}, {"precision": "32-true"}, {"guided": True}, {"compiled": True}
    ):  # fmt: skip
        assert packed_from("auto", model, **settings) == NONE
    assert "padded: flash attention computes in 16 bits on a GPU" in caplog.text
    assert "padded: trainer.compile compiles programs for padded batches" in caplog.text
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert packed_from("auto", model) == NONE
    with pytest.raises(UserError, match=r"trainer\.packing = on, but flash attention needs a GPU"):
        packed_from("on", model)
    assert packed_from("on", model, precision="32-true") == ALL  # sentence by sentence


def test_a_run_can_be_trained_packed(config: Config, tmp_path: Path) -> None:
    train(config("trainer.packing=on", "trainer.max_steps=2", HEADS, CPU), tmp_path / "run")
    assert (tmp_path / "run" / "bundle").is_dir()


# Tokens of a batch


@given(
    fixed=st.integers(0, 10**9), each=st.integers(1, 10**6), first=st.integers(1, 100),
    rows=st.integers(1, 10**5),
)  # fmt: skip
def test_of_rows_that_each_take_the_same_as_many_as_fit(
    fixed: int, each: int, first: int, rows: int
) -> None:
    assert rows_that_fit(lambda n: fixed + each * n, first, fixed + each * rows) == rows
    assert rows_that_fit(lambda n: fixed + each * n, first, fixed + each * (rows + 1) - 1) == rows


@pytest.mark.parametrize(
    ("most", "room", "rows"), [(7, 175, 7), (1, 110, 1), (1, 109, 0), (0, 175, 0)]
)
def test_a_probe_that_does_not_fit_is_halved(most: int, room: int, rows: int) -> None:
    tried = []

    def peak(rows: int) -> int:
        tried.append(rows)
        if rows > most:
            raise torch.OutOfMemoryError
        return 100 + 10 * rows

    if rows:
        assert rows_that_fit(peak, 16, room) == rows
    else:
        with pytest.raises(torch.OutOfMemoryError):
            rows_that_fit(peak, 16, room)
    assert tried[:3] == [16, 8, 4]


class TooLarge(torch.nn.Module):
    """A task whose model a GPU has no memory for."""

    def __init__(self, trainer: dict[str, Any]) -> None:
        super().__init__()
        self.config = SimpleNamespace(trainer=TrainerConfig(**trainer))

    def to(self, device: str) -> Any:
        if device == "cuda":
            raise torch.OutOfMemoryError


def tokens_that_fit(config: dict[str, Any], *, longest: int = 1) -> int:
    task: Any = TooLarge(config["trainer"])
    return token_budget.tokens_that_fit(task, longest=longest, precision="32-true")


def test_a_model_too_large_for_the_gpu_is_told(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_budget, "on_gpu", lambda accelerator: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    with pytest.raises(UserError, match=r"do not fit into the GPU's memory: lower data\.max_len"):
        tokens_that_fit(config())
    sharded = config("trainer.strategy=fsdp", "trainer.averaging.kind=none")
    with pytest.raises(UserError, match=r"one GPU, .*fsdp.*such as data\.tokens_per_batch=4096"):
        tokens_that_fit(sharded)


def test_a_step_has_no_more_than_the_most_and_the_longest_sentence_fits(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = "trainer.accelerator=cpu"
    longest = token_budget.TOKENS_ON_CPU + 1
    assert tokens_that_fit(config(cpu), longest=longest) == longest
    monkeypatch.setattr(token_budget, "MOST", 400)
    assert tokens_that_fit(config(cpu)) == 400
    assert tokens_that_fit(config(cpu, "trainer.devices=2", "trainer.accumulate=4")) == 50


def tokens_noted(run: Path) -> int:
    return int(records.read(run)["tokens_per_batch"])


def test_a_run_that_goes_on_has_the_batches_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto, run = ("data.tokens_per_batch=auto", CPU), tmp_path / "auto"
    monkeypatch.setattr(token_budget, "TOKENS_ON_CPU", 300)
    train(config(*auto, "trainer.max_steps=2"), run)
    assert tokens_noted(run) == 300
    assert "data.tokens_per_batch: 300" in (run / "train.log").read_text()
    monkeypatch.setattr(token_budget, "TOKENS_ON_CPU", 700)  # another machine
    train(config(*auto, "trainer.max_steps=4"), run)
    assert tokens_noted(run) == 300


@pytest.mark.parametrize("together", ["NODE_RANK", "WORLD_SIZE"])
def test_processes_started_together_are_refused(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: str
) -> None:
    settings = config("data.tokens_per_batch=auto", "trainer.accelerator=cpu")
    settings["trainer"]["num_nodes" if together == "NODE_RANK" else "devices"] = 2
    monkeypatch.setenv(together, "0" if together == "NODE_RANK" else "2")
    settings["cache"] = str(tmp_path / "cache")
    with pytest.raises(UserError, match="auto must be determined by one process before the others"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="measures a GPU's memory")
@pytest.mark.parametrize("model", ["transformer", "rnn", "convolutional"])
def test_what_is_found_on_a_gpu_fits(config: Config, tmp_path: Path, model: str) -> None:
    settings = config("data.tokens_per_batch=auto", "trainer.max_steps=1", model=model)
    train(settings, tmp_path / "run")
    assert tokens_noted(tmp_path / "run") > 1000


def test_auto_has_room_for_the_longest_draw_and_not_for_pairs_left_out(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_budget, "MOST", 1)
    auto = ("data.tokens_per_batch=auto", "trainer.max_steps=1", CPU)
    drawn = ("tokenizer=unigram", "tokenizer.vocab_size=500", "tokenizer.sampling.alpha=0.2")
    train(config(*auto, *drawn), tmp_path / "drawn")
    assert (tmp_path / "drawn" / "bundle").is_dir()
    train(config(*auto, "data.max_length=12"), tmp_path / "left_out")
    assert tokens_noted(tmp_path / "left_out") <= 13


# Number formats


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("precision=16-mixed", "precision = 16-mixed needs an NVIDIA GPU, .*: choose bf16-mixed"),
        ("precision=tf32", "precision = tf32 needs an NVIDIA GPU, but this run has none: choose"),
        ("accelerator=gpu", "accelerator = gpu, .*: choose auto or cpu"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(
    config: Config, tmp_path: Path, option: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train(config(f"trainer.{option}"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_tf32_is_float32_but_for_the_products() -> None:
    try:
        multiply_in("tf32")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        multiply_in("32-true")
    assert torch.get_float32_matmul_precision() == "highest"
    assert lightning_name("tf32") == "32-true"
    assert lightning_name("16-mixed") == "16-mixed"


@pytest.mark.parametrize(
    ("has_bf16", "ratio", "chosen"),
    [(True, 2.5, "bf16-mixed"), (True, 0.6, "32-true"), (False, 2.5, "32-true")],
)
def test_a_cpu_trains_in_bf16_where_it_multiplies_it_faster(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, ratio: float, chosen: str
) -> None:
    monkeypatch.setattr(resources, "_cpu_has_bf16", lambda: has_bf16)
    monkeypatch.setattr(resources, "products_in_bf16", lambda: ratio)
    assert chosen_precision("auto", "cpu") == chosen
    assert chosen_precision("64-true", "cpu") == "64-true"
    assert chosen_precision("auto", "cpu", noted="bf16-mixed") == "bf16-mixed"
    assert chosen_precision("auto", "cpu", nodes=2) == "32-true"  # without a trial
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert chosen_precision("auto", "cpu") == "32-true"


def test_an_attempt_that_failed_decides_nothing(config: Config, tmp_path: Path) -> None:
    records.write(tmp_path, precision="64-true")
    train(config("trainer.precision=auto", "trainer.max_steps=1", CPU), tmp_path)
    assert records.read(tmp_path)["precision"] != "64-true"


def test_the_trial_of_products_is_one_of_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No random number is drawn; another job had a core while the first products were timed."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    assert 0 < resources.products_in_bf16() < math.inf
    assert torch.equal(torch.get_rng_state(), state)
    products = itertools.cycle([0.4e-3, 0.9e-3])  # float32, bf16
    others = itertools.chain([9e-3] * 7, itertools.repeat(0.0))
    monkeypatch.setattr(resources, "timeit", lambda *_, **__: next(products) + next(others))
    assert resources.products_in_bf16() == pytest.approx(0.4 / 0.9)
    assert torch.get_num_threads() == threads


def test_a_run_goes_on_in_the_numbers_it_began_with(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, or after a trial that came out otherwise."""
    monkeypatch.setattr(resources, "_cpu_has_bf16", lambda: True)
    for steps, ratio in ((1, 2.5), (2, 0.6)):
        monkeypatch.setattr(resources, "products_in_bf16", lambda ratio=ratio: ratio)
        chosen = ("trainer.precision=auto", f"trainer.max_steps={steps}", CPU)
        train(config(*chosen), tmp_path / "run")
        assert records.read(tmp_path / "run")["precision"] == "bf16-mixed"
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("bf16-mixed") == 2
    assert "32-true" not in log


@pytest.mark.parametrize(("accelerator", "switched"), [("cpu", []), ("auto", [False])])
def test_training_on_a_gpu_leaves_no_attention_to_cudnn(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accelerator: str,
    switched: list[bool],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(L, "seed_everything", lambda *_, **__: None)
    called: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", called.append)
    nodes = TrainingConfig.model_validate(config(f"trainer.accelerator={accelerator}"))
    TrainingRun(nodes, tmp_path)._set_up_process()
    assert called == switched


@pytest.mark.skipif(not torch.cuda.is_available(), reason="float16 trains on GPUs")
def test_a_run_in_float16(config: Config, tmp_path: Path) -> None:
    options = ["trainer.precision=16-mixed", "trainer.max_steps=3"]
    train(config(*options), tmp_path / "run")
    train(config(*options[:1], "trainer.max_steps=6"), tmp_path / "run")
    saved = AtomicCheckpointIO().load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert saved["MixedPrecision"]["scale"] > 0
