"""What a run refuses before its first step: somebody else's folder, settings, text or disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
import torch
import yaml
from torch import nn

from translate.errors import UserError
from translate.files import locked
from translate.training import preflight, records
from translate.training.callbacks import NEVER, StopWhenNotFinite
from translate.training.checkpoints import LastCheckpoint
from translate.training.preflight import (
    CHECKPOINTS,
    SLACK,
    check_machine_and_model,
    check_room,
    check_same_configuration,
)
from translate.training.run import train
from translate.training.settings import TrainingConfig

Config = Callable[..., dict[str, Any]]


def test_a_folder_in_use_is_refused(tmp_path: Path, config: Config) -> None:
    run = tmp_path / "run"
    settings = config()
    with locked(run), pytest.raises(UserError, match=r"is being trained by process .*with run="):
        train(settings, run)
    assert [path.name for path in run.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_written_to_is_refused(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    settings = config()
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(UserError, match=r"run cannot be written to \(Permission denied\).*run="):
        train(settings, tmp_path / "run")


@pytest.mark.parametrize("name", ["checkpoints", "plots"])
def test_a_folder_in_it_that_cannot_be_written_to_is_refused(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"{name} is not a writable folder.*run="):
        train(config(), tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # another owner's
    with pytest.raises(UserError, match=rf"{name} is not a writable folder"):
        train(config(), tmp_path)


# how long and where a run trains, and what it shows: nothing that has shaped its result so far
MAY_DIFFER = {
    "max_steps", "max_epochs", "max_minutes", "patience",
    "accelerator", "devices", "num_nodes", "strategy", "threads",
    "packing", "activation_checkpointing", "compile",
    "samples", "save_every", "keep", "log_every", "tensorboard", "wandb", "mlflow",
}  # fmt: skip


def leaves(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in node.items():
        nested = isinstance(value, Mapping)
        found += leaves(value, f"{prefix}{key}.") if nested else [f"{prefix}{key}"]
    return found


def changed(config: dict[str, Any], place: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(config))
    *path, key = place.split(".")
    node = copy
    for step in path:
        node = node[step]
    node[key] = "something else"
    return copy


def test_each_key_that_differs_is_refused_by_name_but_for_those_that_may(
    tmp_path: Path, config: Config
) -> None:
    before = config()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(before))
    check_same_configuration(before, tmp_path)
    places = leaves(before)
    assert len(places) > 80
    check_same_configuration({**before, "data": {**before["data"], "dir": "moved"}}, tmp_path)
    free = {"cache", "data.workers"} | {f"trainer.{key}" for key in MAY_DIFFER}
    for place in places:
        now = changed(before, place)
        if place in free:
            check_same_configuration(now, tmp_path)
            continue
        with pytest.raises(UserError, match=rf"{place}: .* → 'something else'"):
            check_same_configuration(now, tmp_path)


def test_a_run_that_lost_its_configuration_says_so(tmp_path: Path, config: Config) -> None:
    for content in (None, b"\xff", b"[1]", b"a: ["):
        if content is not None:
            (tmp_path / "config.yaml").write_bytes(content)
        with pytest.raises(UserError, match=r"config\.yaml, .* cannot be read: restore it"):
            check_same_configuration(config(), tmp_path)


def test_a_run_goes_on_only_with_its_own_text_and_from_a_whole_checkpoint(
    tmp_path: Path, config: Config
) -> None:
    run = tmp_path / "run"
    train(config("trainer.max_steps=1"), run)
    last = run / "checkpoints" / "last.ckpt"
    whole = bytearray(last.read_bytes())
    last.write_bytes(whole[:-100])
    with pytest.raises(UserError, match=r"last\.ckpt is damaged.*copy .*best\.ckpt") as refused:
        train(config("trainer.max_steps=2"), run)
    assert "\n" not in str(refused.value)
    shutil.copy(run / "checkpoints" / "best.ckpt", last)  # as it says
    train(config("trainer.max_steps=2"), run)
    record = records.read(run)
    records.write(run, corpus={**record["corpus"], "target tokenizer": "another"})
    with pytest.raises(UserError, match=r"different text \(changed: target tokenizer\)"):
        train(config("trainer.max_steps=3"), run)


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a run's folder, but for its log and its lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("train.log", ".lock")
    }


@pytest.mark.parametrize(
    "held",
    [
        "bundle/config.json",  # a model shipped without checkpoints, or a mean of several
        ".bundle.old/config.json",  # its replacement was killed
        "config.json",  # a bundle itself
        "checkpoints/best.ckpt",
        "checkpoints/step-0000007.ckpt",
    ],
)
def test_a_trained_model_with_nothing_to_go_on_from_is_not_trained_over(
    tmp_path: Path, config: Config, held: str
) -> None:
    path = tmp_path / "run" / held
    path.parent.mkdir(parents=True)
    path.write_bytes(b"trained")
    with pytest.raises(
        UserError, match=r"contains a trained model \(.*last\.ckpt.*restore it.*init="
    ):
        train(config(), tmp_path / "run")
    assert contents(tmp_path / "run") == {held: b"trained"}


@pytest.mark.parametrize(
    ("step", "checkpoints", "record", "refused"),
    [
        (1, ["best", "step-0000001"], {"status": "unfinished"}, False),
        (2, ["best"], {"status": "unfinished"}, True),
        (1, ["best", "step-0000002"], {"status": "unfinished"}, True),
        (1, [], {"status": "unfinished", "steps": 9}, True),  # out of time, and trained on since
        (1, [], {"status": "finished"}, True),
        (1, [], None, True),
    ],
)
def test_a_run_begins_over_where_it_holds_no_more_than_its_first_step(
    tmp_path: Path, step: int, checkpoints: list[str], record: Any, refused: bool
) -> None:
    for folder in ("bundle", "checkpoints"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bundle" / "config.json").write_text(json.dumps({"extra": {"step": step}}))
    for name in checkpoints:
        (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    if record is not None:
        (tmp_path / "provenance.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="contains a trained model") if refused else nullcontext():
        preflight.check_nothing_lost(tmp_path)


class Killed(BaseException):
    pass


def killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_run_that_lost_all_of_its_training_does_not_begin_anew_and_one_without_any_does(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something to go on from is there before the first model, whatever a run is killed at."""
    run = tmp_path / "run"
    settings = config("trainer.validate_every=3", "trainer.save_every=100", "trainer.max_steps=3")
    for owner, name in (
        (StopWhenNotFinite, "on_train_batch_end"),
        (LastCheckpoint, "on_validation_end"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killed)
            with pytest.raises(Killed):
                train(settings, run)
    assert (run / "bundle").exists()
    for half in (".bundle.new/config.json", "checkpoints/last.ckpt.tmp", "config.yaml.tmp"):
        (run / half).parent.mkdir(exist_ok=True)
        (run / half).write_bytes(b"half")
    train(settings, run)
    assert records.read(run)["steps"] == 3
    assert not {path.name for path in run.rglob("*")} & {
        ".bundle.new",
        "last.ckpt.tmp",
        "config.yaml.tmp",
    }
    for name in ("checkpoints", "bundle"):
        shutil.rmtree(run / name)
    with pytest.raises(UserError, match=r"trained model \(3 steps in provenance\.json\)"):
        train(config("trainer.max_steps=6"), run)


def test_a_refused_run_is_recorded_as_it_was(tmp_path: Path, config: Config) -> None:
    run = tmp_path / "run"
    train(config("trainer.max_steps=1"), run)
    last = run / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    before = contents(run)
    for end in ("trainer.max_steps=2", "trainer.max_epochs=2"):
        with pytest.raises(UserError, match=r"last\.ckpt is damaged"):
            train(config(end), run)
        assert contents(run) == before
    assert records.run_status(run) == "finished"


@pytest.mark.parametrize("shorter", ["trainer.max_steps=2", "trainer.max_epochs=1"])
def test_a_run_is_not_made_shorter_than_it_is(tmp_path: Path, config: Config, shorter: str) -> None:
    run, short = tmp_path / "run", ("data.train=60", "trainer.samples=0")
    train(config(*short, "trainer.max_steps=5"), run)
    before = contents(run)
    steps = [] if "max_steps" in shorter else ["trainer.max_steps=null"]
    with pytest.raises(UserError, match=rf"has already taken 5 steps, but {shorter} .*give more"):
        train(config(*short, *steps, shorter), run)
    assert contents(run) == before


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1000, 1000))


GUIDED = "trainer.guided_alignment.weight=0.5"


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        ("transformer", ["trainer.packing=on", "model.positions=alibi"],
         r"trainer\.packing = on, but model\.positions=alibi"),
        ("transformer", ["trainer.packing=on", GUIDED, "trainer.guided_alignment.layer=1"],
         r"trainer\.packing = on, but trainer\.guided_alignment"),
        ("transformer", ["trainer.packing=on", "trainer.compile=true"],
         r"trainer\.packing = on, but trainer\.compile"),
        ("transformer", [GUIDED, "trainer.guided_alignment.layer=9"],
         r"trainer\.guided_alignment\.layer = 9: this model has layers 1 to 2"),
        ("transformer", [GUIDED, "tokenizer=unigram", "tokenizer.sampling.alpha=0.2"],
         r"guided_alignment\.weight and tokenizer\.sampling cannot be combined"),
        ("rnn", [GUIDED, "model.attention=none"], "no attention over the source"),
        ("rnn", ["search.coverage_penalty=0.2", "model.attention=none"],
         r"search\.coverage_penalty = 0\.2 .* this model has no attention"),
    ],
)  # fmt: skip
def test_what_its_model_cannot_do_is_refused_before_a_corpus_is_prepared(
    config: Config, tmp_path: Path, model: str, options: list[str], told: str
) -> None:
    settings = config(*options, model=model) | {"cache": str(tmp_path / "cache")}
    with pytest.raises(UserError, match=told):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_to_ask_a_model_draws_nothing_of_the_run(config: Config) -> None:
    settings = config(GUIDED, "trainer.packing=off")
    before = torch.random.get_rng_state()
    check_machine_and_model(TrainingConfig.model_validate(settings))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_disk_too_small_for_the_checkpoints_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer(*, averages: bool, keep: int) -> Any:
        return SimpleNamespace(averages=averages, keep=keep)

    weights, free = 4_000_000, 0
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    needed = CHECKPOINTS * 4 * weights + 2 * weights + SLACK
    free = needed
    check_room(tmp_path, Model(), trainer(averages=True, keep=0))
    free = needed - 1
    with pytest.raises(UserError, match=r"has 123 MB free, but .* need 123 MB: free up space"):
        check_room(tmp_path, Model(), trainer(averages=True, keep=0))
    check_room(tmp_path, Model(), trainer(averages=False, keep=0))
    with pytest.raises(UserError, match="need 135 MB"):  # two checkpoints more, of 12 MB
        check_room(tmp_path, Model(), trainer(averages=False, keep=2))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").write_bytes(b"12")  # will make way
    check_room(tmp_path, Model(), trainer(averages=True, keep=0))


def test_a_model_larger_than_memory_is_told_before_it_is_built(
    tmp_path: Path, config: Config
) -> None:
    settings = config("model.d_model=1000000", "model.num_heads=2")  # 4 TB a matrix
    told = r"[\d,]{18,} parameters .*, but this process may have [\d.]+ GB of memory: choose fewer"
    with pytest.raises(UserError, match=told):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_full_disk_is_told_before_the_first_step(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000_000))
    with pytest.raises(UserError, match="has 10 MB free"):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()


TEXT = pyarrow.table(
    {side: [f"{side} {row}" for row in range(200)] for side in ("source", "target")}
)


def trainer_of(*others: float) -> Any:
    """Whose other processes had a loss that is not finite first at these steps."""

    def reduce(step: torch.Tensor, reduce_op: str) -> torch.Tensor:
        assert reduce_op == "min"
        return torch.tensor(min([float(step), *others]))

    strategy = SimpleNamespace(root_device=torch.device("cpu"), reduce=reduce)
    return SimpleNamespace(
        accumulate_grad_batches=1, world_size=1 + len(others), global_step=5, strategy=strategy,
        is_global_zero=True,
    )  # fmt: skip


def steps(
    guard: StopWhenNotFinite,
    losses: list[float],
    device: str,
    trainer: Any = None,
    broken: int | None = None,
) -> None:
    """Training, with a gradient that is not finite after the batch of that index."""
    module: Any = SimpleNamespace(device=torch.device(device))
    for index, loss in enumerate(losses):
        module.step_norm = torch.tensor(float("nan") if index == broken else 1.0)
        batch: Any = SimpleNamespace(ids=torch.tensor([index, 100 + index]))
        outputs = {"loss": torch.tensor(loss)}
        guard.on_train_batch_end(trainer or trainer_of(), module, outputs, batch, index)


def test_a_loss_on_a_gpu_is_looked_at_now_and_then_and_before_each_save(tmp_path: Path) -> None:
    """There each look waits for all the work that was given out."""
    guard = StopWhenNotFinite(tmp_path, every=4, text=TEXT)
    steps(guard, [1.0, float("inf"), 2.0], "cuda")
    with pytest.raises(UserError, match=r"the loss is inf at step 2 \(its training pairs: .*json"):
        guard.on_save_checkpoint(trainer_of(), Model(), {})  # type: ignore[arg-type]
    record = json.loads((tmp_path / "not_finite.json").read_text())
    texts = {side: [f"{side} 1", f"{side} 101"] for side in ("source", "target")}
    assert record == {"step": 2, "loss": "inf", "pairs": [1, 101], **texts}
    guard = StopWhenNotFinite(tmp_path, every=3, text=TEXT)
    with pytest.raises(UserError, match="the loss is nan at step 1"):
        steps(guard, [float("nan"), 1.0, 1.0], "cuda")
    steps(StopWhenNotFinite(tmp_path, every=3, text=TEXT), [1.0] * 9, "cuda")


@pytest.mark.parametrize(
    ("own", "others", "told", "writes"),
    [
        ([1.0, 1.0], [NEVER], None, False),
        ([1.0, 1.0], [1], "the loss is not finite at step 1", False),
        ([1.0, float("nan")], [NEVER], "the loss is nan at step 2", True),
        ([1.0, float("nan")], [1], "the loss is not finite at step 1", False),  # it came from there
    ],
)
def test_a_loss_that_is_not_finite_in_one_process_stops_all_of_them(
    tmp_path: Path, own: list[float], others: list[int], told: str | None, writes: bool
) -> None:
    guard = StopWhenNotFinite(tmp_path, every=2, text=TEXT)
    with pytest.raises(UserError, match=told) if told else nullcontext():
        steps(guard, own, "cpu", trainer_of(*others))
    assert (tmp_path / "not_finite.json").exists() == writes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gradient_that_is_not_finite_is_told_with_all_pairs_of_its_step(
    tmp_path: Path, device: str
) -> None:
    guard, trainer = StopWhenNotFinite(tmp_path, every=4, text=TEXT), trainer_of()
    trainer.accumulate_grad_batches = 2
    with pytest.raises(UserError, match=r"the gradient is not finite at step 2 \(its training"):
        steps(guard, [1.0] * 8, device, trainer, broken=3)
    record = json.loads((tmp_path / "not_finite.json").read_text())
    assert record["gradient"] == "nan"
    assert record["pairs"] == [2, 102, 3, 103]
    assert record["target"][1] == "target 102"


def test_weights_that_are_no_numbers_are_neither_saved_nor_translated_with(tmp_path: Path) -> None:
    """The first process alone translates: the search's own error would leave the others waiting."""
    model: Any = Model()
    guard = StopWhenNotFinite(tmp_path, every=1, text=TEXT)
    guard.on_save_checkpoint(trainer_of(), model, {})
    guard.on_validation_start(trainer_of(), model)
    with torch.no_grad():
        model.weight[3, 3] = float("nan")
    told = "the weights weight are not finite after step 5"
    with pytest.raises(UserError, match=told):
        guard.on_save_checkpoint(trainer_of(), model, {})
    with pytest.raises(UserError, match=told):
        guard.on_validation_start(trainer_of(), model)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["trainer.accelerator=cpu"], r"trainer\.accelerator=cpu this run has none"),
        (["trainer.compile=true"], r"trainer\.compile compiles programs of its own"),
    ],
)
def test_flex_attention_is_refused_where_it_cannot_learn(
    asked: list[str], reason: str, config: Config, tmp_path: Path
) -> None:
    """Before a folder is made: nothing but the lock is in it."""
    wanted = ["model.flex_attention=true", "model.positions=alibi", "model.d_model=64"]
    with pytest.raises(UserError, match=r"model\.flex_attention = true, but .*" + reason):
        train(config(*wanted, *asked), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_told_before_any_work(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=rf"trainer\.{name}=true needs .* install '{name}>="):
        train(config(f"trainer.{name}=true"), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
