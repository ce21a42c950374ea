"""What a run refuses before its first step, and what it says of itself before it begins."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from translate.data.corpus import prepare, read_nodes
from translate.data.module import TranslationData
from translate.errors import UserError
from translate.files import locked
from translate.models import registry
from translate.training import preflight, records
from translate.training.callbacks import StopWhenNotFinite
from translate.training.checkpoints import LastCheckpoint
from translate.training.preflight import (
    CHECKPOINTS,
    SLACK,
    check_machine_and_model,
    check_room,
    check_same_configuration,
)
from translate.training.run import train
from translate.training.settings import MAY_CHANGE, MAY_DIFFER, TrainingConfig

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


def test_a_folder_in_it_that_cannot_be_written_to_is_refused(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints").touch()
    with pytest.raises(UserError, match=r"checkpoints is not a writable folder.*run="):
        train(config(), tmp_path)
    (tmp_path / "checkpoints").unlink()
    (tmp_path / "plots").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # another owner's
    with pytest.raises(UserError, match=r"plots is not a writable folder"):
        train(config(), tmp_path)


def leaves(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    places = []
    for key, value in node.items():
        nested = isinstance(value, Mapping)
        places += leaves(value, f"{prefix}{key}.") if nested else [f"{prefix}{key}"]
    return places


def changed(config: dict[str, Any], place: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(config))
    *path, key = place.split(".")
    node = copy
    for step in path:
        node = node[step]
    node[key] = "something else"
    return copy


def test_each_key_that_differs_is_refused_by_name_but_for_those_that_may(
    tmp_path: Path, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    before = config()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(before))
    check_same_configuration(before, tmp_path)
    places = leaves(before)
    assert len(places) > 80
    for place in places:
        now = changed(before, place)
        if place in MAY_CHANGE:
            check_same_configuration(now, tmp_path)
            assert not caplog.records
            continue
        if place in MAY_DIFFER:
            check_same_configuration(now, tmp_path)
            assert f"goes on otherwise than it began ({place}: " in caplog.text
            caplog.clear()
            continue
        with pytest.raises(UserError, match=rf"{place}: .* → 'something else'"):
            check_same_configuration(now, tmp_path)


def test_a_run_that_lost_its_configuration_says_so(tmp_path: Path, config: Config) -> None:
    with pytest.raises(UserError, match=r"has no config\.yaml, .*: restore it"):
        check_same_configuration(config(), tmp_path)
    (tmp_path / "config.yaml").write_bytes(b"a: [")
    with pytest.raises(UserError, match=r"config\.yaml cannot be read"):
        check_same_configuration(config(), tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a run's folder, but for its log and its lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("train.log", ".lock")
    }


def test_a_run_goes_on_only_with_its_own_text_and_from_a_whole_checkpoint(
    tmp_path: Path, config: Config
) -> None:
    """And is recorded as it was where it is refused."""
    run = tmp_path / "run"
    train(config("trainer.max_steps=1"), run)
    last = run / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    before = contents(run)
    for end in ("trainer.max_steps=2", "trainer.max_epochs=2"):
        with pytest.raises(UserError, match=r"last\.ckpt is damaged.*copy .*best\.ckpt") as refused:
            train(config(end), run)
        assert "\n" not in str(refused.value)
        assert contents(run) == before
    shutil.copy(run / "checkpoints" / "best.ckpt", last)  # as it says
    train(config("trainer.max_steps=2"), run)
    record = records.read(run)
    records.write(run, corpus={**record["corpus"], "target tokenizer": "another"})
    with pytest.raises(UserError, match=r"different text \(changed: target tokenizer\)"):
        train(config("trainer.max_steps=3"), run)


@pytest.mark.parametrize(
    "name",
    [
        "bundle/config.json",  # a model shipped without checkpoints, or a mean of several
        ".bundle.old/config.json",  # its replacement was killed
        "config.json",  # a bundle itself
        "checkpoints/best.ckpt",
        "checkpoints/step-0000007.ckpt",
    ],
)
def test_a_trained_model_with_nothing_to_go_on_from_is_not_trained_over(
    tmp_path: Path, config: Config, name: str
) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"trained")
    with pytest.raises(
        UserError, match=r"contains a trained model \(.*last\.ckpt.*restore it.*init="
    ):
        train(config(), tmp_path / "run")
    assert contents(tmp_path / "run") == {name: b"trained"}


@pytest.mark.parametrize(
    ("checkpoints", "record", "refused"),
    [
        (["best", "step-0000001"], {"best_step": 1}, False),
        (["best"], {"best_step": 2}, True),
        (["best", "step-0000002"], {"best_step": 1}, True),
        ([], {"best_step": 1, "steps": 9}, True),  # out of time, and trained on since
        ([], {}, True),
    ],
)
def test_a_run_begins_over_where_it_holds_no_more_than_its_first_step(
    tmp_path: Path, checkpoints: list[str], record: dict[str, int], refused: bool
) -> None:
    for folder in ("bundle", "checkpoints"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bundle" / "config.json").touch()
    for name in checkpoints:
        (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    records.write(tmp_path, **record)
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
    halves = (".bundle.new/config.json", "checkpoints/last.ckpt.tmp", "config.yaml.tmp")
    for half in halves:
        (run / half).parent.mkdir(exist_ok=True)
        (run / half).write_bytes(b"half")
    train(settings, run)
    assert records.read(run)["steps"] == 3
    assert not any((run / half).exists() for half in halves)
    for name in ("checkpoints", "bundle"):
        shutil.rmtree(run / name)
    with pytest.raises(UserError, match=r"trained model \(.*provenance\.json\)"):
        train(config("trainer.max_steps=6"), run)


@pytest.mark.parametrize("shorter", ["trainer.max_steps=1", "trainer.max_epochs=1"])
def test_a_run_is_not_made_shorter_than_it_is(tmp_path: Path, config: Config, shorter: str) -> None:
    run, short = tmp_path / "run", "data.train=20"
    train(config(short, "trainer.max_steps=3"), run)
    before = contents(run)
    steps = [] if "max_steps" in shorter else ["trainer.max_steps=null"]
    with pytest.raises(UserError, match=rf"has already taken 3 steps, but {shorter} .*give more"):
        train(config(short, *steps, shorter), run)
    assert contents(run) == before


GUIDED = "trainer.guided_alignment.weight=0.5"
FLEX = ["model.flex_attention=true", "model.positions=alibi", "model.d_model=64"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
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
        ("rnn", [GUIDED, "trainer.guided_alignment.head=2"], r"head = 2: .* has heads 1 to 1"),
        ("rnn", ["search.coverage_penalty=0.2", "model.attention=none"],
         r"search\.coverage_penalty = 0\.2 .* this model has no attention"),
        ("transformer", ["model.d_model=1000000", "model.num_heads=2"],  # 4 TB a matrix
         r"[\d,]{18,} parameters .*, but this process may have [\d.]+ GB of memory: choose fewer"),
        ("transformer", [*FLEX, "trainer.accelerator=cpu"],
         r"model\.flex_attention = true, but .* this run has none"),
        ("transformer", [*FLEX, "trainer.compile=true"],
         r"model\.flex_attention = true, but trainer\.compile compiles programs of its own"),
    ],
)  # fmt: skip
def test_what_its_model_cannot_do_is_refused_before_a_corpus_is_prepared(
    config: Config, tmp_path: Path, model: str, options: list[str], message: str
) -> None:
    settings = config(*options, model=model) | {"cache": str(tmp_path / "cache")}
    with pytest.raises(UserError, match=message):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_to_ask_a_model_draws_nothing_of_the_run(config: Config) -> None:
    settings = config(GUIDED, "trainer.packing=off")
    before = torch.random.get_rng_state()
    check_machine_and_model(TrainingConfig.model_validate(settings))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_told_before_any_work(
    config: Config, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda package: None)
    settings = TrainingConfig.model_validate(config(f"trainer.{name}=true"))
    with pytest.raises(UserError, match=rf"trainer\.{name}=true needs .* install '{name}>="):
        check_machine_and_model(settings)


def test_a_disk_too_small_for_the_checkpoints_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer(*, averages: bool, keep: int) -> Any:
        return SimpleNamespace(averages=averages, keep=keep)

    model, weights, free = nn.Linear(1000, 1000, bias=False), 4_000_000, 0
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    needed = CHECKPOINTS * 4 * weights + 2 * weights + SLACK
    free = needed
    check_room(tmp_path, model, trainer(averages=True, keep=0))
    free = needed - 1
    with pytest.raises(UserError, match=r"has 123 MB free, but .* need 123 MB: free up space"):
        check_room(tmp_path, model, trainer(averages=True, keep=0))
    check_room(tmp_path, model, trainer(averages=False, keep=0))
    with pytest.raises(UserError, match="need 135 MB"):  # two checkpoints more, of 12 MB
        check_room(tmp_path, model, trainer(averages=False, keep=2))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").write_bytes(b"12")  # will make way
    check_room(tmp_path, model, trainer(averages=True, keep=0))


def test_a_full_disk_is_told_before_the_first_step(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000_000))
    with pytest.raises(UserError, match="has 10 MB free"):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_sentences_that_the_model_cannot_read_are_told_before_training(
    config: Config, tmp_path: Path
) -> None:
    learned = ("model.positions=learned", "model.max_positions=9")
    message = r"of train has \d+ pieces.* 9 positions: set model\.max_positions=\d+ or more"
    with pytest.raises(UserError, match=message):
        train(config(*learned), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(("train", "dev"), [(8, 8), (9, 8), (8, 9)])
def test_sentences_may_fill_all_positions_of_the_model_and_no_more(
    monkeypatch: pytest.MonkeyPatch, train: int, dev: int
) -> None:
    monkeypatch.setattr(preflight, "lengths", lambda table: (np.array([3, dev]), np.array([5, 2])))
    data: Any = SimpleNamespace(
        corpus=SimpleNamespace(dev=None),
        planned=SimpleNamespace(extent=SimpleNamespace(longest=train, pairs=2)),
    )
    model: Any = SimpleNamespace(max_length=8)
    with pytest.raises(UserError, match="has 9 pieces") if 9 in (train, dev) else nullcontext():
        preflight.check_lengths(model, data)


@pytest.mark.parametrize(("pool_batches", "tolerance"), [(100, 0.05), (5, 3.0)])
def test_the_plan_is_what_then_happens(
    config: Config, monkeypatch: pytest.MonkeyPatch, pool_batches: int, tolerance: float
) -> None:
    """The way through the corpus, and what memory and disk hold."""
    settings = config("trainer.accumulate=2", "trainer.keep=4")
    corpus = prepare(
        *read_nodes(settings["data"], settings["tokenizer"]), cache=Path(settings["cache"])
    )
    data = TranslationData(
        corpus, max_length=settings["data"]["max_length"], tokens_per_batch=300,
        pool_batches=pool_batches, workers=0, sampling=False, guided=False, seed=1,
    )  # fmt: skip
    pieces = len(corpus.tokenizers.source)
    model = registry.build(settings["model"], source_vocab_size=pieces, target_vocab_size=pieces)

    def plan(*, warmup_steps: int = 29, **schedule: Any) -> str:
        node = {"kind": "constant", "warmup_steps": warmup_steps}
        return preflight.plan(
            TrainingConfig.model_validate(settings | {"schedule": node | schedule}),
            Path("runs/mine"), model, data,
            steps=30, processes=3, precision="32-true", resuming=False,
        )  # fmt: skip

    text = plan()
    assert text.count("\n") == 2
    assert plan(warmup_steps=30) == (
        f"{text}\nthe learning rate never stops rising: schedule.warmup_steps = 30 of 30 "
        "steps; use fewer, or train longer"
    )
    assert plan(kind="halving", parts=4, kept=3) == text
    assert plan(kind="halving", parts=4, kept=4) == (
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
    assert f"memory {shared} plus activations" in plan()
    data.max_length = 10
    del data.mixture  # which was made for the other length
    longest = (max(map(len, pair)) for pair in zip(*(corpus.train[f"{side}_ids"]
               for side in ("source", "target")), strict=True))  # fmt: skip
    left_out = sum(length > 10 for length in longest)
    assert 0 < left_out < 300
    assert (
        f" {300 - left_out} training pairs ({left_out} longer than data.max_length = 10 pieces are "
        "left out), 30 steps"
    ) in plan()
