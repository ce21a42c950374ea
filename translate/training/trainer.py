"""Lightning, set up for one run: checkpoints, logs, progress, precision."""

from __future__ import annotations

import csv
import io
import logging
import os
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from lightning.pytorch.utilities import rank_zero_only

from translate.errors import UserError
from translate.files import naming, read_plain, replacing
from translate.names import on_demand
from translate.run_folder import LARGEST_METRICS
from translate.training.callbacks import Patience, Reports, SpareMemory, StepsBar
from translate.training.checkpoints import AtomicCheckpointIO, KeptCheckpoints, LastCheckpoint
from translate.training.launch import started_by_slurm
from translate.training.resources import lightning_name, on_gpu, processes
from translate.training.settings import Precision, TrainerConfig

GRACE = 10  # seconds in which a process may say why it ends
SHARDED = "translate.extras.sharding:FullySharded"  # PyTorch's part of it takes a second to import


def build_trainer(
    config: TrainerConfig,
    run: Path,
    steps: int,
    callbacks: list[Callback],
    last: LastCheckpoint,
    *,
    precision: Precision,
) -> L.Trainer:
    """Make Lightning's trainer for `steps` optimizer steps; `callbacks` come before its own.

    The whole run is one epoch of an endless stream of batches, which `max_steps` ends.
    """
    shows_bar = sys.stderr.isatty()
    reports = Reports(every=config.log_every, total_steps=steps, lines=not shows_bar)
    callbacks = [*callbacks, SpareMemory(), reports, KeptCheckpoints(run, latest=config.keep), last]
    if shows_bar:
        callbacks.append(StepsBar(steps * config.accumulate, reports))
    if config.patience is not None:
        callbacks.insert(0, Patience("dev/bleu", mode="max", patience=config.patience))
    return L.Trainer(
        # Lightning's own choice may be a GPU that nothing else here takes
        accelerator="cuda" if on_gpu(config.accelerator) else "cpu", devices=config.devices,
        num_nodes=config.num_nodes,
        strategy=on_demand(SHARDED)(processes(config)) if config.strategy == "fsdp"
        else config.strategy,
        precision=lightning_name(precision),
        max_epochs=1, max_steps=steps,
        accumulate_grad_batches=config.accumulate,
        gradient_clip_val=config.gradient_clip or None,
        val_check_interval=last.validate_every * config.accumulate,
        check_val_every_n_epoch=None, num_sanity_val_steps=0,
        log_every_n_steps=config.log_every,
        logger=_loggers(config, run), callbacks=callbacks,
        plugins=[AtomicCheckpointIO(), *_cluster(config)],
        default_root_dir=run, enable_progress_bar=shows_bar, enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,  # whose tensors cannot be gathered where weights are sharded
    )  # fmt: skip


def _cluster(config: TrainerConfig) -> list[ClusterEnvironment]:
    """Leave out Lightning's requeueing under SLURM.

    That saves in the middle of a step, in a file of its own that the next call would go on from
    unasked. Of one process alone Lightning would ask that its job has no further tasks.
    """
    if TorchElasticEnvironment.detect() or "SLURM_NTASKS" not in os.environ:
        return []
    together = processes(config) > 1 and started_by_slurm()
    return [SLURMEnvironment(auto_requeue=False) if together else LightningEnvironment()]


@contextmanager
def ending_together(trainer: L.Trainer) -> Iterator[None]:
    """End the processes that Lightning started where training ends with an error or a signal.

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
                try:
                    child.wait(GRACE)
                except subprocess.TimeoutExpired:  # it waits for this process, which failed alone
                    child.kill()
                    child.wait()
        raise


def _loggers(config: TrainerConfig, run: Path) -> list[Logger]:
    """Make the loggers: metrics.csv always; the others where they are asked for."""
    loggers: list[Logger] = [MetricsFile(run / "metrics.csv")]
    if config.tensorboard:
        from lightning.pytorch.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(run, name="tensorboard", version=""))
    if config.wandb:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(WandbLogger(name=run.name, save_dir=run, project="translate"))
    if config.mlflow:
        from lightning.pytorch.loggers import MLFlowLogger

        database = f"sqlite:///{(run / 'mlflow.db').absolute()}"  # it no longer takes a folder
        server = os.environ.get("MLFLOW_TRACKING_URI", database)
        loggers.append(MLFlowLogger("translate", run_name=run.name, tracking_uri=server))
    return loggers


class MetricsFile(Logger):
    """The file metrics.csv, to which rows are appended; a new column rewrites it once.

    A row of a step and columns that are reached again (after a crash, from an older checkpoint)
    takes the place of the old one, and all after that go. What a kill left of a row is dropped.
    Lightning's CSVLogger would begin the file anew in each call.

    Raises:
        UserError: a line is no row of metrics.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        self.rows: list[dict[str, str]] = []
        if path.exists():
            text = read_plain(path, largest=LARGEST_METRICS).decode("utf-8", "replace")
            whole, _, torn = text.rpartition("\n")  # a kill may leave a part of the last row
            reader = csv.DictReader(io.StringIO(whole, newline=""))
            for row in reader:
                if None in row or not (row.get("step") or "").isdecimal():
                    raise UserError(
                        f"{path}, line {reader.line_num} is not a row of metrics: fix it, or "
                        "remove the file (the run can resume without it)"
                    )
                self.rows.append(row)
            self.columns = list(reader.fieldnames or self.columns)
            if torn:
                self._rewrite()

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: the run keeps its configuration in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        row = {"step": str(step)} | {
            key: f"{value:.6g}" for key, value in sorted(metrics.items()) if key != "epoch"
        }
        before = len(self.rows)
        self.rows = self._without(row)
        reached_again = len(self.rows) < before
        new_columns = [key for key in row if key not in self.columns]
        self.columns += new_columns
        self.rows.append(row)
        if reached_again or new_columns or len(self.rows) == 1:
            self._rewrite()
        else:
            with naming(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)

    def _without(self, row: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the rows that `row` does not replace."""
        step, columns = int(row["step"]), row.keys()
        if not self.rows or int(self.rows[-1]["step"]) < step:
            return self.rows

        def comes_before(old: Mapping[str, str]) -> bool:
            same = {column for column, value in old.items() if value} == columns
            return int(old["step"]) < step or (int(old["step"]) == step and not same)

        return list(takewhile(comes_before, self.rows))

    def _rewrite(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        with replacing(self.path) as file:
            file.write(text.getvalue().encode())


def quieten_lightning() -> None:
    """Silence Lightning's reports, and its warnings of what is meant here."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        r".*isinstance\(treespec, LeafSpec\).*",  # its own use of PyTorch
        r".*does not have many workers.*",  # batches are cut from tokenised text
        r"GPU available but not used.*",  # by choice, or none of NVIDIA's
        r".*smaller than the logging interval.*",  # a short run
        r".*resuming from a checkpoint that ended before the epoch ended.*",  # TokenBatches.skip
        r".*callbacks used to create the checkpoint need to be provided.*",  # patience may change
        r"FSDP2-wrapped module .* returned a view tensor.*",  # which nothing changes in place
    ):
        warnings.filterwarnings("ignore", message=message)
