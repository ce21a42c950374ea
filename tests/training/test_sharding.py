"""trainer.strategy=fsdp: weights dealt out to the processes, and nothing else changed."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from forked import torchrun
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from translate.attention.masks import padding_mask
from translate.attention.packed import Packing
from translate.errors import UserError
from translate.extras import sharding
from translate.extras.checkpoint_average import kept
from translate.models import registry
from translate.training import records
from translate.training.averaging import for_use
from translate.training.callbacks import StopWhenNotFinite
from translate.training.checkpoints import AtomicCheckpointIO
from translate.training.run import train
from translate.training.step import TranslationTask

Config = Callable[..., dict[str, Any]]
EXACT = [
    "model.dropout=0.0",
    "trainer.precision=32-true",
    "trainer.validate_every=3",
    "model.encoder_layers=1",  # what takes the time is to gather each weight for a checkpoint
    "model.decoder_layers=1",
    "optimizer.eps=1e-5",
]  # Adam would make steps of the rounding of gradients that are 0


def started(run: Path, options: list[str], count: int = 2) -> None:
    """Trained in processes of its own."""
    said = run.with_suffix(".said")
    statuses = torchrun(count, ["train", f"run={run}", *options], said)
    assert statuses == [0] * count, said.read_text()
    assert "Warning" not in said.read_text()


@pytest.mark.soak
@pytest.mark.parametrize("optimizer", ["sgd", "adadelta"])
def test_any_optimizer_goes_on_where_weights_are_dealt_out(
    config: Config, overrides: Callable[..., list[str]], tmp_path: Path, optimizer: str
) -> None:
    """Plain gradient descent has nothing to remember, which PyTorch does not foresee."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    options = [*EXACT[:-1], f"optimizer={optimizer}"]
    train(config(*options, "trainer.accumulate=2", "trainer.max_steps=6"), alone)
    sharded = ["trainer.devices=2", "trainer.accelerator=cpu", "trainer.strategy=fsdp"]
    for steps in (3, 6):
        started(together, overrides(*options, *sharded, f"trainer.max_steps={steps}"))
    expected, actual = (
        AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
        for run in (alone, together)
    )
    for name, weight in expected.items():
        torch.testing.assert_close(actual[name], weight, rtol=0, atol=2e-5, msg=name)


@pytest.mark.parametrize(
    ("legs", "accumulate", "others"),
    [
        ([("fsdp", 6)], 1, []),
        pytest.param([("ddp", 2), ("fsdp", 4), ("ddp", 6)], 1, [], marks=pytest.mark.soak),
        pytest.param(
            [("fsdp", 6)], 2, ["trainer.activation_checkpointing=true"], marks=pytest.mark.soak
        ),
    ],
    ids=["sharded", "gone on with", "accumulated and computed again"],
)
def test_sharded_training_equals_one_process(
    config: Config,
    overrides: Callable[..., list[str]],
    tmp_path: Path,
    legs: list[tuple[str, int]],
    accumulate: int,
    others: list[str],
) -> None:
    """Weights and moments of one process that accumulates, from whichever checkpoint it went on."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    train(config(*EXACT, f"trainer.accumulate={2 * accumulate}", "trainer.max_steps=6"), alone)
    for strategy, steps in legs:
        options = overrides(
            *EXACT, *others, "trainer.devices=2", "trainer.accelerator=cpu",
            f"trainer.accumulate={accumulate}", f"trainer.strategy={strategy}",
            f"trainer.max_steps={steps}", "trainer.keep=2",
        )  # fmt: skip
        started(together, options)
    expected, actual = (
        AtomicCheckpointIO().load_checkpoint(run / "checkpoints" / "last.ckpt")
        for run in (alone, together)
    )
    for part in ("state_dict", "averaged_weights"):
        assert actual[part].keys() == expected[part].keys()
        for name, weight in expected[part].items():
            torch.testing.assert_close(actual[part][name], weight, rtol=0, atol=2e-5, msg=name)
    assert len(kept(together)) == 2
    of_the_last = AtomicCheckpointIO().load_checkpoint(kept(together)[6])
    assert all(
        torch.equal(of_the_last["state_dict"][name], weight)
        for name, weight in actual["state_dict"].items()
    )
    theirs, ours = (each["optimizer_states"][0] for each in (expected, actual))
    assert [group["params"] for group in ours["param_groups"]] == [
        group["params"] for group in theirs["param_groups"]
    ]
    for number, state in theirs["state"].items():
        torch.testing.assert_close(
            ours["state"][number]["exp_avg"], state["exp_avg"], rtol=0, atol=1e-6
        )
    saved, whole = (load_file(run / "bundle" / "model.safetensors") for run in (together, alone))
    assert saved.keys() == whole.keys()
    best = for_use(AtomicCheckpointIO().load_checkpoint(together / "checkpoints" / "best.ckpt"))
    assert all(torch.equal(weight, best[f"model.{name}"]) for name, weight in saved.items())


def test_tensors_of_a_validation_can_be_gathered(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's inference mode, which it leaves out with gloo, would make them fail on GPUs."""
    found: list[bool] = []
    monkeypatch.setattr(
        TranslationTask,
        "on_validation_start",
        lambda _: found.append(torch.is_inference_mode_enabled()),
    )
    train(config("trainer.max_steps=1"), tmp_path / "run")
    assert found == [False]


@pytest.mark.soak
def test_patience_that_is_spent_stays_spent_where_weights_are_dealt_out(
    overrides: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Also where Lightning reads the checkpoint only after the weights are dealt out."""
    for steps in (8, 9):
        options = overrides(
            "trainer.strategy=fsdp", "trainer.devices=1", "trainer.accelerator=cpu",
            "trainer.validate_every=1", "trainer.patience=1", f"trainer.max_steps={steps}",
            "optimizer.learning_rate=1e-12",
        )  # fmt: skip
        started(tmp_path / "run", options, count=1)
    assert records.read(tmp_path / "run")["steps"] == 2


def saves_what_is_broken_in_one_shard(rank: int, folder: Path) -> None:
    """A process of two: writes what it is told."""
    rendezvous = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    model: Any = nn.Linear(3, 6)
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    trainer: Any = SimpleNamespace(global_step=5)
    try:
        StopWhenNotFinite(folder, every=1, text=None).on_save_checkpoint(trainer, model, {})
    except UserError as error:
        (folder / f"{rank}").write_text(str(error))
    dist.destroy_process_group()


@pytest.mark.soak
def test_weights_that_are_no_numbers_stop_all_processes_alike(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(saves_what_is_broken_in_one_shard, (tmp_path,), nprocs=2)
    told = [(tmp_path / f"{rank}").read_text() for rank in (0, 1)]
    assert "the weights weight are not finite after step 5" in told[0]
    assert told[1] == told[0]


def reads_in_its_own_way(rank: int, folder: Path, options: dict[str, Any]) -> None:
    """A process of two: the first pads its sentences, the second packs them.

    Writes the largest difference of its gradients from those of one process.
    """
    rendezvous = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    torch.manual_seed(0)
    dealt_out = registry.build(options, source_vocab_size=30, target_vocab_size=30).double()
    whole = copy.deepcopy(dealt_out)
    sharding.shard(dealt_out, init_device_mesh("cpu", (2,)))
    lengths, words = torch.tensor([5, 2, 4]), torch.arange(15).view(3, 5) + 4
    packing = Packing(lengths, 5, 11)
    mask = padding_mask(lengths, 5)
    packed = packing.pack(words)
    if rank == 0:
        hidden = packing.pack(dealt_out.read(words, mask, words).hidden)
    else:
        hidden = dealt_out.read_packed(packed, packed, packing, packing)
    hidden.square().sum().backward()
    whole.read_packed(packed, packed, packing, packing).square().sum().backward()
    differences = [
        float((one.grad.full_tensor() - other.grad).abs().max())
        for one, other in zip(dealt_out.parameters(), whole.parameters(), strict=True)
        if other.grad is not None
    ]
    (folder / f"{rank}").write_text(f"{len(differences)} {max(differences)}")
    dist.destroy_process_group()


@pytest.mark.soak
def test_one_process_may_pack_what_another_pads(config: Config, tmp_path: Path) -> None:
    """Both gather weights in the same order."""
    options = config("model.dropout=0.0", "model.num_heads=2", model="transformer")["model"]
    torch.multiprocessing.spawn(reads_in_its_own_way, (tmp_path, options), nprocs=2)
    for rank in ("0", "1"):
        gradients, difference = (tmp_path / rank).read_text().split()
        assert int(gradients) > 20
        assert float(difference) < 1e-9


def test_what_was_gathered_has_gone_before_the_copy_comes_to_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device has to hold all weights once, not twice."""
    gathered: list[weakref.ref[torch.Tensor]] = []

    def gather(model: nn.Module, options: object) -> dict[str, torch.Tensor]:
        state = {name: weight.clone() for name, weight in model.state_dict().items()}
        gathered.extend(map(weakref.ref, state.values()))
        return state

    class Copy(nn.Linear):
        def to(self, *_: Any) -> Any:
            assert [each() for each in gathered] == [None, None]
            return self

    monkeypatch.setattr(sharding, "get_model_state_dict", gather)
    task: Any = SimpleNamespace(model=nn.Linear(2, 3), evaluated=Copy(2, 3), device="cuda")
    sharding.ShardedTask.on_validation_start(task)
    assert torch.equal(task.evaluated.weight, task.model.weight)


@pytest.mark.parametrize(
    ("model", "override", "remedy"),
    [
        ("transformer", "trainer.precision=64-true", "trainer.precision=auto"),
        ("transformer", "trainer.compile=true", "trainer.compile=false"),
        ("transformer", "trainer.minimum_risk.weight=0.5", "trainer.minimum_risk.weight=0"),
        ("rnn", "trainer.precision=auto", "model=transformer"),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    config: Config, tmp_path: Path, model: str, override: str, remedy: str
) -> None:
    chosen = config("trainer.strategy=fsdp", override, model=model)
    with pytest.raises(UserError, match=rf"fsdp trains Transformers .*: choose .*{remedy}"):
        train(chosen, tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
