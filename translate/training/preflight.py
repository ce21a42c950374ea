"""The checks before the first step, and the plan of a run.

What needs only the configuration is checked where that is read (`settings.TrainingConfig`), other
processes in `launch`. Here are the machine, the disk, the run's folder and the text.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from translate import machine
from translate.config import check
from translate.data.batching import lengths
from translate.data.corpus import Corpus
from translate.data.module import TranslationData
from translate.errors import UserError
from translate.inference import bundle as bundles
from translate.models import registry
from translate.models.head import attends
from translate.models.registry import shapes_only
from translate.models.seq2seq import Seq2Seq
from translate.run_folder import configuration
from translate.search.scoring import nothing_to_cover
from translate.training import records
from translate.training.checkpoints import kept
from translate.training.launch import is_first_process, started_together
from translate.training.objectives import Guidance
from translate.training.resources import MOMENTS, bytes_of, on_gpu, packed_from
from translate.training.settings import (
    MAY_CHANGE,
    MAY_DIFFER,
    TrainerConfig,
    TrainingConfig,
    flat,
)
from translate.wording import counted, install

log = logging.getLogger(__name__)
FEW = 8  # pieces, special ones included: embeddings take no memory
ON_GPUS = ("tf32", "16-mixed")  # CPUs have no such products, or none that is faster

CHECKPOINTS = 3  # last, best, and the one that is being written
BUNDLES = 2  # the best, and the one that will replace it
SLACK = 64 << 20  # bytes: logs, pictures, metrics, names


def check_machine_and_model(config: TrainingConfig) -> None:
    """Raise a UserError for what this machine or the configured model cannot do.

    The model is asked with a vocabulary of `FEW` pieces, before a corpus is prepared.
    """
    check(_machine_problems(config))
    check(_memory_problems(config))  # before such a model is built
    check(_model_problems(config))


def _machine_problems(config: TrainingConfig) -> Iterator[str]:
    trainer = config.trainer
    gpu = on_gpu(trainer.accelerator)
    if trainer.accelerator == "gpu" and not gpu:
        yield "trainer.accelerator = gpu, but PyTorch finds no NVIDIA GPU here: choose auto or cpu"
    if trainer.precision in ON_GPUS and not gpu:  # Lightning would take another
        yield (
            f"trainer.precision = {trainer.precision} needs an NVIDIA GPU, but this run has none: "
            "choose bf16-mixed, 32-true or auto"
        )
    for name in ("tensorboard", "wandb", "mlflow"):
        if getattr(trainer, name) and find_spec(name) is None:
            yield f"trainer.{name}=true needs the package {name}: {install(name)}"
    if config.model.model_dump().get("flex_attention") and not gpu:
        yield (
            "model.flex_attention = true, but it can only train on NVIDIA GPUs, and this run has "
            "none: set it to false"
        )


def _memory_problems(config: TrainingConfig) -> Iterator[str]:
    """Yield that this machine cannot build the model or, without a GPU, cannot train it."""
    trainer = config.trainer
    with shapes_only():
        outline = registry.build(config.model, source_vocab_size=FEW, target_vocab_size=FEW)
    needed, purpose = bytes_of(outline), "to hold"
    if not on_gpu(trainer.accelerator) and trainer.strategy != "fsdp":
        needed, purpose = memory_of_training(outline, averaged=trainer.averages), "to train"
    granted = machine.memory()
    if needed > granted:
        yield (
            f"this model of {sum(p.numel() for p in outline.parameters()):,} parameters and its "
            f"vocabulary takes {readable(needed)} {purpose}, but this process may have "
            f"{readable(granted)} of memory: choose fewer or smaller layers, or a larger machine"
        )


def _model_problems(config: TrainingConfig) -> Iterator[str]:
    """Yield options that the model does not carry out; a head or packing it lacks is raised."""
    trainer, coverage = config.trainer, getattr(config.search, "coverage_penalty", 0.0)
    if not (trainer.guides or coverage or trainer.packing == "on"):
        return
    with torch.random.fork_rng(devices=[]):  # the run's own weights come first of its seed
        model = registry.build(config.model, source_vocab_size=FEW, target_vocab_size=FEW)
    Guidance.build(model, trainer.guided_alignment)
    if coverage and not attends(model):
        yield nothing_to_cover(coverage)
    if trainer.packing == "on":  # what it asks of a GPU is known when its precision is
        packed_from(
            "on", model, accelerator="cpu", precision="32-true",
            guided=trainer.guides, compiled=trainer.compile,
        )  # fmt: skip


def check_writable(run: Path) -> None:
    """Raise a UserError for a folder in the run that takes no files, as the first save would."""
    for folder in (run / "checkpoints", run / "plots"):
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise UserError(
                f"{folder} is not a writable folder: fix its permissions, remove it if it is a "
                "file, or choose another folder with run="
            )


def check_same_configuration(config: Mapping[str, Any], run: Path) -> None:
    """Raise a UserError where a run would go on under another configuration, but `MAY_CHANGE`.

    What is in `MAY_DIFFER` is warned of: batches, rates and precision can be other from here on.
    """
    written = configuration(run)
    if not written:
        raise UserError(
            f"{run} has no config.yaml, which records what it was started with: restore it, or "
            "start a new run folder"
        )
    if isinstance(node := written.get("model"), dict):
        written["model"] = registry.upgraded(node)
    with suppress(ValidationError):  # keys that are newer than the run have their defaults
        written = TrainingConfig.model_validate(written).dump()
    before, now = flat(written), flat(config)
    differences = {
        key: f"{key}: {before.get(key)!r} → {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in MAY_CHANGE
    }
    if refused := [line for key, line in differences.items() if key not in MAY_DIFFER]:
        raise UserError(
            f"{run} was started with another configuration ({'; '.join(refused)}): leave "
            "these keys as they were (if files have moved, put them or links to them back), or "
            "start a new run folder; init= begins one from these weights"
        )
    if differences and is_first_process():
        log.warning(
            "%s goes on otherwise than it began (%s): from here on it is not, to the bit, the run "
            "that it would have been", run, "; ".join(differences.values()),
        )  # fmt: skip


def check_same_corpus(corpus: Corpus, run: Path) -> None:
    """Raise a UserError where the files that the same configuration names have changed since."""
    before, now = records.read(run).get("corpus"), corpus.identity
    if before is None or before == now:
        return
    changed = ", ".join(key for key in now if before.get(key) != now[key])
    raise UserError(
        f"{run} was started with different text (changed: {changed}): restore the data files, or "
        "start a new run folder. If they are what they were, another version of this program "
        "prepared them otherwise: resume the run with that version, or start from it with init="
    )


def check_nothing_lost(run: Path) -> None:
    """Raise a UserError where a run without its last.ckpt would begin anew and replace its model.

    One that a kill ended in the validation of its first step, before any checkpoint, may do so.
    """
    record = records.read(run) if (run / records.FILE).exists() else {}
    checkpoints = sorted((run / "checkpoints").glob("*.ckpt"))
    trained = [*filter(None, [bundles.located(run)]), *checkpoints]
    if "steps" in record:  # of a training that came to its end
        trained.append(run / records.FILE)
    in_first_step = record.get("best_step") == 1 and max(kept(run), default=1) == 1
    if trained and not ("steps" not in record and in_first_step):
        raise UserError(
            f"{run} contains a trained model ({', '.join(map(str, trained))}) but no "
            "checkpoints/last.ckpt to resume from: restore it, or copy best.ckpt in its place; or "
            f"start from this model with init={run} and another run=; or remove the folder"
        )


def check_new(config: TrainingConfig, *, from_nothing: bool) -> None:
    """Raise a UserError where a new run cannot learn, or its processes would not agree."""
    trainer = config.trainer
    if from_nothing and (weight := trainer.minimum_risk.weight):
        raise UserError(
            f"trainer.minimum_risk.weight = {weight} learns from what the model samples, and "
            "random weights sample noise: train with 0 first, then start from that run with "
            "init=PATH"
        )
    if config.data.tokens_per_batch == "auto" and started_together(trainer.num_nodes) > 1:
        raise UserError(
            "data.tokens_per_batch = auto must be determined by one process before the others "
            "start, but here all start at once: train a step on one device first, and give the "
            "number it logs"
        )


def check_room(run: Path, model: nn.Module, trainer: TrainerConfig) -> None:
    """Raise a UserError where a run would end with a full disk."""
    # an earlier part of the run will be replaced
    files = (path for name in ("checkpoints", "bundle") for path in (run / name).glob("*"))
    needed = space_of_run(model, trainer) - sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(run).free
    if free < needed:
        raise UserError(
            f"{run} has {readable(free)} free, but checkpoints and bundle need {readable(needed)}: "
            "free up space, or choose another folder with run= or a smaller model"
        )


def check_lengths(model: Seq2Seq, data: TranslationData) -> None:
    """Raise a UserError for a sentence that the model cannot read, which would stop it later.

    And where all training pairs are left out as too long.
    """
    if not data.planned.extent.pairs:
        pieces = np.maximum(*lengths(data.corpus.train)) - 1  # </s> does not count
        raise UserError(
            f"all {counted(len(pieces), 'training pair')} are longer than data.max_length = "
            f"{data.max_length} pieces: set data.max_length="
            f"{int(np.quantile(pieces, 0.99, method='higher'))}, which nearly all are within"
        )
    if model.max_length is None:
        return
    dev = max(int(side.max()) for side in lengths(data.corpus.dev))
    for split, longest in (("train", data.planned.extent.longest), ("dev", dev)):
        if longest > model.max_length:
            raise UserError(
                f"the longest sentence of {split} has {longest} pieces, including </s>, but this "
                f"model has {model.max_length} positions: set model.max_positions={longest} or more"
            )


def check_not_shorter(run: Path, trainer: TrainerConfig, taken: int, *, total: int) -> None:
    """Raise a UserError where a run would end before the step that its checkpoint has come to."""
    if taken <= total:
        return
    ends = {"max_steps": trainer.max_steps, "max_epochs": trainer.max_epochs}
    asked = " and ".join(f"trainer.{key}={end}" for key, end in ends.items() if end is not None)
    raise UserError(
        f"{run} has already taken {counted(taken, 'step')}, but {asked} would end it after "
        f"{total:,}: give more, or leave it as it was"
    )


def space_of_run(model: nn.Module, trainer: TrainerConfig) -> int:
    """Return the bytes that a run takes on the disk."""
    weights = bytes_of(model)
    checkpoint = weights * (1 + MOMENTS + trainer.averages)
    return (CHECKPOINTS + trainer.keep) * checkpoint + BUNDLES * weights + SLACK


def memory_of_training(model: nn.Module, *, averaged: bool) -> int:
    """Return the bytes that weights, gradients, optimizer and averages take while training."""
    return bytes_of(model) * (2 + MOMENTS + averaged)


def readable(count: int) -> str:
    """Say a number of bytes as people read it: `1.2 GB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def plan(
    config: TrainingConfig,
    run: Path,
    model: nn.Module,
    data: TranslationData,
    *,
    steps: int,
    processes: int,
    precision: str,
    resuming: bool,
) -> str:
    """Say what a run is about to do: its way through the corpus, its memory and disk.

    And where the learning rate never comes to its peak, or is never halved. Memory is that of
    weights, gradients and optimizer, or a process's share of them and the whole weights that it
    validates with; activations, which grow with the batch, come on top.
    """
    trainer, extent = config.trainer, data.mixture.extent
    of_step = trainer.accumulate * processes  # batches
    batches = data.batches()
    # all pools of an epoch are as large as the first
    epoch = max(1, batches.pools * sum(1 for _ in batches.pool(0, epoch=0))) / of_step
    memory = memory_of_training(model, averaged=trainer.averages)
    if trainer.strategy == "fsdp":
        memory = memory // processes + bytes_of(model)
    pairs = f"{extent.pairs:,} training pairs"
    if longer := data.mixture.pairs - extent.pairs:
        pairs += (
            f" ({longer:,} longer than data.max_length = {data.max_length} pieces are left out)"
        )
    lines = [
        f"{'resuming' if resuming else 'training'} {run}: "
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {pairs}, "
        f"{counted(steps, 'step')} of at most {data.tokens_per_batch * of_step:,} tokens per side, "
        f"{precision}, {counted(processes, 'process', 'processes')}",
        f"an epoch is {extent.source_tokens:,.0f} source and {extent.target_tokens:,.0f} target "
        f"tokens, about {epoch:,.{int(epoch < 10)}f} steps; the run passes over the corpus "
        f"{steps / epoch:.1f} times",
        f"memory {readable(memory)} plus activations, in each process; disk "
        f"{readable(space_of_run(model, trainer))}",
    ]
    return "\n".join([*lines, *config.schedule.never_reached(steps)])
