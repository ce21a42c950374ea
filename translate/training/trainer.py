"""Lightning, set up for one run: checkpoints, logs, progress, precision."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning as L
import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from translate.training.accelerator import on_gpu
from translate.training.best_checkpoints import BestCheckpoints, LatestCheckpoints
from translate.training.callbacks import (
    EstimatedTime,
    Patience,
    Reports,
    SpareMemory,
    StepsBar,
)
from translate.training.checkpoint import AtomicCheckpointIO
from translate.training.checkpoint_average import KEPT
from translate.training.last_checkpoint import LastCheckpoint
from translate.training.launch import started_by_slurm
from translate.training.metrics import MetricsFile
from translate.training.precision import Precision, lightning_name
from translate.training.settings import Settings

GRACE = 10  # seconds in which a process may say why it ends


def build_trainer(
    options: Settings,
    run: Path,
    steps: int,
    callbacks: list[Callback],
    last: LastCheckpoint,
    *,
    precision: Precision,
) -> L.Trainer:
    """Lightning's trainer for `steps` optimizer steps; `callbacks` come before its own.

    The whole run is one epoch of an endless stream of batches, which `max_steps` ends: nothing
    depends on where a pass through the corpus begins.
    """
    shows_bar = sys.stderr.isatty()
    reports = Reports(every=options.log_every, total_steps=steps, lines=not shows_bar)
    callbacks = [
        *callbacks,
        SpareMemory(),
        EstimatedTime(total_steps=steps),
        reports,
        *_kept_checkpoints(run / "checkpoints", options.keep),
        last,
    ]
    if shows_bar:
        callbacks.append(StepsBar(steps * options.accumulate, reports))
    if options.patience is not None:
        callbacks.insert(0, Patience("dev/bleu", mode="max", patience=options.patience))
    return L.Trainer(
        # Lightning's own choice may be a GPU that nothing else here takes
        accelerator="cuda" if on_gpu(options.accelerator) else "cpu", devices=options.devices,
        num_nodes=options.num_nodes, strategy=_strategy(options),
        precision=lightning_name(precision),
        max_epochs=1, max_steps=steps,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=options.gradient_clip or None,
        val_check_interval=last.validate_every * options.accumulate,
        check_val_every_n_epoch=None, num_sanity_val_steps=0,
        log_every_n_steps=options.log_every,
        logger=_loggers(options, run), callbacks=callbacks,
        plugins=[AtomicCheckpointIO(), *_cluster(options)],
        default_root_dir=run, enable_progress_bar=shows_bar, enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,  # whose tensors cannot be gathered where weights are dealt out
    )  # fmt: skip


def _kept_checkpoints(folder: Path, latest: int) -> list[Callback]:
    """What keeps the checkpoint of the best validation, and those of so many of the latest."""
    best = BestCheckpoints(
        folder, filename="best", monitor="dev/bleu", mode="max", save_top_k=1,
        enable_version_counter=False, save_on_train_epoch_end=False,
    )  # fmt: skip
    if not latest:
        return [best]
    return [best, LatestCheckpoints(
        folder, filename=KEPT, monitor="step", mode="max", save_top_k=latest,
        auto_insert_metric_name=False, enable_version_counter=False, save_on_train_epoch_end=False,
    )]  # fmt: skip


def _cluster(options: Settings) -> list[ClusterEnvironment]:
    """Under SLURM, without Lightning's requeueing.

    That saves in the middle of a step, in a file of its own that the next call would go on from
    unasked. Of one process alone Lightning would ask that its job has no further tasks.
    """
    if TorchElasticEnvironment.detect() or "SLURM_NTASKS" not in os.environ:
        return []
    together = processes(options) > 1 and started_by_slurm()
    return [SLURMEnvironment(auto_requeue=False) if together else LightningEnvironment()]


def _strategy(options: Settings) -> str | Strategy:
    if options.strategy != "fsdp":
        return options.strategy
    from translate.training.sharding import FullySharded  # PyTorch's part of it takes a second

    return FullySharded(processes(options))


def processes(options: Settings) -> int:
    """How many processes train together."""
    return options.num_nodes * devices(options)


def devices(options: Settings) -> int:
    """How many of them are on each machine."""
    if options.devices == "auto":
        # as Lightning counts
        return torch.cuda.device_count() if on_gpu(options.accelerator) else 1
    return options.devices


@contextmanager
def ending_together(trainer: L.Trainer) -> Iterator[None]:
    """Where training ends with an error or a signal, end the processes that Lightning started.

    Lightning looks at them every few seconds and, once one has failed, kills this one: also in the
    middle of a sweep's next run.
    """
    try:
        yield
    except BaseException:
        launcher = trainer.strategy.launcher
        if isinstance(launcher, _SubprocessScriptLauncher):
            children = launcher.procs.copy()
            launcher.procs.clear()  # in place: what looks at them ends with an empty list
            for child in children:
                _end(child)
        raise


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:  # waiting for this process, which failed alone
        child.kill()
        child.wait()


def _loggers(options: Settings, run: Path) -> list[Logger]:
    """metrics.csv always; the others where they are asked for."""
    loggers: list[Logger] = [MetricsFile(run / "metrics.csv")]
    if options.tensorboard:
        from lightning.pytorch.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(run, name="tensorboard", version=""))
    if options.wandb:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(WandbLogger(name=run.name, save_dir=run, project="translate"))
    if options.mlflow:
        from lightning.pytorch.loggers import MLFlowLogger

        database = f"sqlite:///{(run / 'mlflow.db').absolute()}"  # it no longer takes a folder
        server = os.environ.get("MLFLOW_TRACKING_URI", database)
        loggers.append(MLFlowLogger("translate", run_name=run.name, tracking_uri=server))
    return loggers


def quieten_lightning() -> None:
    """What it says of the run we say ourselves; what it warns of here is meant or none of ours."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        r".*isinstance\(treespec, LeafSpec\).*",  # its own use of PyTorch
        r".*does not have many workers.*",  # batches are cut from tokenised text
        r"GPU available but not used.*",  # by choice, or none of NVIDIA's
        r".*smaller than the logging interval.*",  # a short run
        r".*Checkpoint directory .* exists and is not empty.*",  # a resumed run
        r".*resuming from a checkpoint that ended before the epoch ended.*",  # TokenBatches.skip
        r".*callbacks used to create the checkpoint need to be provided.*",  # patience may change
        r"FSDP2-wrapped module .* returned a view tensor.*",  # which nothing changes in place
    ):
        warnings.filterwarnings("ignore", message=message)
