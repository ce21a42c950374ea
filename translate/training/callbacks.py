"""Around the steps: reports, dev translations, patience, and numbers that are not finite.

Callbacks run in the order of their list, which `run.TrainingRun` and `trainer.build_trainer`
make; several depend on it and say so.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import matplotlib.image
import torch
import torch.distributed as processes
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, RichProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn
from pyarrow import Table
from rich.progress import ProgressColumn
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from translate.data.corpus import Corpus
from translate.data.pairs import at
from translate.errors import UserError
from translate.evaluation.metrics import bleu, choose_tokenizer, part_bleu
from translate.files import replacing
from translate.inference import bundle
from translate.inference.translator import Translator
from translate.machine import give_back_memory
from translate.names import on_demand
from translate.search import Search
from translate.training import records
from translate.training.settings import TrainingConfig
from translate.training.step import TranslationTask, ends_step, is_due
from translate.wording import counted

log = logging.getLogger(__name__)

TIDIED = 100  # batches, after which memory is given back
LOOK = 1.0  # seconds between looks at the losses, each of which waits for the GPU
SHOWN = (  # beside the bar: logged name, name for people, format
    ("train/loss", "loss", "%.3f"),
    ("train/risk", "risk", "%.3f"),
    ("tokens_per_second", "tokens/s", "%.0f"),
    ("learning_rate", "learning rate", "%.2e"),
)

SIDES = ("source_tokens", "target_tokens")
HEATMAP = "translate.extras.attention_pictures:heatmap"
MOST_DRAWN = 200  # pieces of a sample's source: more are no picture any more

NOT_FINITE = "not_finite.json"
NEVER = math.inf  # the place of what is not finite, where all is
AFTER = 0.5  # of a step: where its gradient stands, behind the losses that it comes from


class StepsBar(RichProgressBar):
    """One bar over the whole run, on stderr: the stream of batches itself has no end."""

    def __init__(self, batches: int, reports: Reports) -> None:
        super().__init__(console_kwargs={"stderr": True})
        self.batches, self.reports = batches, reports
        self.losses: dict[str, float] = {}
        self.looked = 0.0  # when the losses were read

    @property
    def total_train_batches(self) -> int:
        return self.batches

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn]:
        """Lightning's columns without the epoch, of which there is one, and iterations a second."""
        _, bar, batches, times, _ = super().configure_columns(trainer)
        bar.bar_width = 20  # leaves room for the figures
        return [bar, batches, times]

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        now = time.monotonic()
        if now - self.looked >= LOOK:
            assert isinstance(pl_module, TranslationTask)
            self.looked, self.losses = now, pl_module.means.here()  # none right after a report
        figures = self.reports.shown | self.losses
        return {shown: form % figures[key] for key, shown, form in SHOWN if key in figures}


class SpareMemory(Callback):
    """A callback that gives gaps between tensors back, or a long run has twice what it uses.

    The steps after it find their pages anew in a tenth of a second; after each that would be much.
    """

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if (args[-1] + 1) % TIDIED == 0:
            give_back_memory()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        give_back_memory()


class Patience(EarlyStopping):
    """Early stopping that takes a new patience when a run goes on, and stays stopped once spent."""

    @property
    def spent(self) -> bool:
        """Tell whether there were as many validations without a better dev BLEU."""
        return bool(self.wait_count >= self.patience)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # not at the start of fitting, where a sharded run has not yet read its checkpoint
        trainer.should_stop = self.spent
        if self.spent:
            log.warning(
                "out of patience after step %s: to continue training, give trainer.patience=null "
                "or a larger number",
                f"{trainer.global_step:,}",
            )

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_due(trainer):
            super().on_validation_end(trainer, pl_module)


def lasting(seconds: float) -> str:
    """Say a time as precisely as an estimate is: `40 s`, `11 min`, `2 h 05 min`, `3 d 04 h`."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24:02} h"


class Reports(Callback):
    """A row for the loggers every so many steps and, without a progress bar, a line.

    At the run's last step, too, of those since. Losses of all processes together, the learning
    rate, and tokens/s: real (not padding) source and target tokens, </s> included; validation time
    is not counted. Lightning itself would write the row after the step is saved: a run that died in
    between would go on behind it. Must come before what saves.
    """

    def __init__(self, *, every: int, total_steps: int, lines: bool) -> None:
        self.every, self.total_steps, self.lines = every, total_steps, lines
        self.tokens = 0
        self.shown: dict[str, float] = {}  # the last report
        self.seconds = self.rate = 0.0
        self.started = self.batch_started = 0.0
        self.first_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.started = self.batch_started = time.monotonic()
        self.first_step = trainer.global_step

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        self.rate = optimizer.param_groups[0]["lr"]  # afterwards it is the next step's

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.monotonic()
        self.seconds += now - self.batch_started
        self.batch_started = now
        self.tokens += batch.source_tokens + batch.target_tokens
        step = trainer.global_step
        due = step % self.every == 0 or step == self.total_steps
        if not due or not ends_step(trainer, batch_idx):
            return
        speed = self.tokens * trainer.world_size / self.seconds
        assert isinstance(pl_module, TranslationTask)
        losses = pl_module.means.everywhere(trainer.strategy)
        pl_module.means.clear()
        self.shown = losses | {"tokens_per_second": speed, "learning_rate": self.rate}
        for logger in trainer.loggers:
            logger.log_metrics(self.shown, step - 1)
            logger.save()  # what is still in a buffer would not be written again
        if self.lines:
            left = (now - self.started) / (step - self.first_step) * (self.total_steps - step)
            log.info(
                "step %d/%d  loss %.3f  %.0f tokens/s  learning rate %.2e  %s left",
                step, self.total_steps, losses["train/loss"], speed, self.rate, lasting(left),
            )  # fmt: skip
        self.tokens, self.seconds = 0, 0.0


class Budget(Callback):
    """Notes seconds and tokens with each save, so that they are those of the steps that count.

    What a kill took of them is taken again. Tokens, </s> included, are those of all processes, and
    a part of the checkpoint; seconds, with validations, are of all calls, and in the record alone:
    checkpoints of runs that were stopped or not are the same.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.before = dict.fromkeys(SIDES, 0)  # in earlier calls
        self.here = dict.fromkeys(SIDES, 0)  # in this one, by this process
        self.seconds = self.started = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for side in SIDES:
            self.here[side] += getattr(batch, side)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["tokens"] = self._note(trainer)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.before = checkpoint.get("tokens", self.before)  # runs of before had none
        self.seconds = float(records.noted(self.run, "seconds") or 0)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._note(trainer)

    def _note(self, trainer: Trainer) -> dict[str, int]:
        """Return the tokens so far, for which all processes ask at once; one writes them down."""
        here = torch.tensor([*self.here.values()], device=trainer.strategy.root_device)
        of_all = trainer.strategy.reduce(here, reduce_op="sum").tolist()
        tokens = {side: self.before[side] + n for side, n in zip(SIDES, of_all, strict=True)}
        if trainer.is_global_zero:
            seconds = self.seconds + time.monotonic() - self.started
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            records.write(self.run, ended=ended, seconds=round(seconds, 1), **tokens)
        return tokens


class DevTranslations(Callback):
    """A callback that translates dev sentences, logs BLEU, and keeps the best bundle.

    Must come before weight averaging in the list of callbacks: it then sees averaged weights.

    Args:
        tokenize: BLEU's tokenizer, where the run has begun with one: scores of two do not compare.
    """

    def __init__(
        self,
        config: TrainingConfig,
        corpus: Corpus,
        run: Path,
        *,
        search: Search,
        tokens_per_batch: int,
        tokenize: str | None = None,
    ) -> None:
        rows = corpus.dev.slice(0, config.trainer.validation_sentences)
        self.sources = rows["source"].to_pylist()
        self.references = rows["references"].to_pylist()
        first = "" if len(rows) == len(corpus.dev) else f"the first {len(rows):,} of "
        self.judged_by = first + counted(len(corpus.dev), "sentence")
        self.tokenize = choose_tokenizer(tokenize, corpus.target_language, self.references)
        self.corpus, self.search, self.config, self.run = corpus, search, config, run
        self.samples, self.tokens_per_batch = config.trainer.samples, tokens_per_batch
        self.best, self.last_step = -1.0, -1

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        perfect = [max(item, key=len) for item in self.references]
        score = part_bleu(perfect, self.references, tokenize=self.tokenize)
        if trainer.is_global_zero and score is None:
            log.warning(
                "dev BLEU stays 0, as no reference has four tokens: the last model will be kept"
            )

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TranslationTask)
        loss = float(trainer.callback_metrics["dev/loss"])  # of all processes, which all ask
        score = self._translate(trainer, pl_module, loss) if trainer.is_global_zero else 0.0
        # a number: a tensor would come to every process on the device of the first
        score = trainer.strategy.broadcast(score)
        pl_module.log("dev/bleu", score, sync_dist=True)  # equal everywhere already
        self.last_step = trainer.global_step
        if trainer.state.fn == TrainerFn.FITTING and is_due(trainer):
            # Lightning would at the end of an epoch, of which a run has one, and after the save
            for config in trainer.lr_scheduler_configs:
                if isinstance(config.scheduler, ReduceLROnPlateau):
                    config.scheduler.step(score)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]

    def _translate(self, trainer: Trainer, task: TranslationTask, loss: float) -> float:
        step, started = trainer.global_step, time.monotonic()
        translator = Translator(
            task.evaluated, self.corpus.tokenizers, self.search,
            tokens_per_batch=self.tokens_per_batch, device=task.device,
        )  # fmt: skip
        hypotheses = translator.translate(self.sources)
        # in float32, as it is logged: best.ckpt and the bundle go by the same number
        score = torch.tensor(bleu(hypotheses, self.references, tokenize=self.tokenize)).item()
        seconds = time.monotonic() - started
        beside = "the best so far" if score >= self.best else f"best {self.best:.2f}"
        log.info(
            "step %d: dev BLEU %.2f on %s (%.0f s), %s; dev loss %.3f, perplexity %.2f",
            step, score, self.judged_by, seconds, beside, loss, torch.tensor(loss).exp(),
        )  # fmt: skip
        shown = list(zip(self.sources, self.references, hypotheses, strict=True))[: self.samples]
        text = "\n\n".join(
            f"  source      {source}\n  reference   {references[0]}\n  hypothesis  {hypothesis}"
            for source, references, hypothesis in shown
        )
        if shown:
            log.info("%s", text)
        if score >= self.best:  # of equals the later one, as `KeptCheckpoints` has it
            self.best = score
            self._save_bundle(task, step)
        if shown:  # when the model is safe: a picture may fail
            _to_tensorboard(trainer, text, self._draw_attention(translator, step))
        return score

    def _draw_attention(self, translator: Translator, step: int) -> Path | None:
        """Draw the first sample's alignment, averaged over layers and heads; None without."""
        if len(self.corpus.tokenizers.source.encode(self.sources[0])) > MOST_DRAWN:
            return None
        try:
            attention = translator.align(self.sources[0])
        except UserError:  # a model without attention has nothing to draw
            return None
        picture = self.run / "plots" / f"attention-{step:06d}.png"
        weights = attention.weights.mean(axis=(0, 1))
        try:
            on_demand(HEATMAP)(attention.source_pieces, attention.target_pieces, weights, picture)
        except UserError as error:
            log.warning("%s; the run goes on without it", error)
            return None
        return picture

    def _save_bundle(self, task: TranslationTask, step: int) -> None:
        config = self.config.dump()
        bundle.save(
            self.run / "bundle",
            node=config["model"], model=task.evaluated, tokenizers=self.corpus.tokenizers,
            languages=(self.corpus.source_language, self.corpus.target_language),
            search=config["search"],
            extra={
                "dev_bleu": round(self.best, 2), "step": step, "corpus": config["data"],
                "source_pieces": self.corpus.practised_length(config["data"]["max_length"]),
                "common_names": self.corpus.common_names(),
            },
            taught=None if task.guidance is None else task.guidance.head,
        )  # fmt: skip
        records.write(self.run, best_step=step)


def _to_tensorboard(trainer: Trainer, samples: str, picture: Path | None) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            writer, step = logger.experiment, trainer.global_step
            writer.add_text("dev/samples", f"```\n{samples}\n```", step)  # verbatim, not Markdown
            if picture is not None:
                pixels = matplotlib.image.imread(picture)
                writer.add_image("dev/attention", pixels, step, dataformats="HWC")


class _Number(NamedTuple):
    """A loss of a batch, or the norm of a step's gradient."""

    place: float  # its step, or that and `AFTER`
    value: Tensor
    pairs: Tensor  # of its batch, or of all batches of its step


class StopWhenNotFinite(Callback):
    """A callback that stops a run whose numbers are not finite, before good files are lost.

    It looks at every loss and gradient, and at the weights before they are saved or validated.
    Asking a GPU for one number waits for all its work, and asking other processes for theirs, so
    that they are looked at every so many steps there, and before each save and validation; by one
    process on a CPU at once. All look together and stop alike, whichever had the loss: one that
    stopped alone would leave the others waiting. Must come before the callbacks that save.

    Args:
        run: where not_finite.json goes, with the pairs to look at; a process that had the loss
            writes it, of a gradient the first.
        text: the training pairs, by their ids in a batch: the columns `source` and `target`.
    """

    def __init__(self, run: Path, *, every: int, text: Table) -> None:
        self.run, self.every, self.text = run, every, text
        self.unseen: list[_Number] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = 1 + batch_idx // trainer.accumulate_grad_batches  # as the log counts them
        self.unseen.append(_Number(step, outputs["loss"].detach(), batch.ids))
        if not ends_step(trainer, batch_idx):
            return
        if (norm := cast(TranslationTask, pl_module).step_norm) is not None:
            pairs = torch.cat([each.pairs for each in self.unseen if each.place == step])
            self.unseen.append(_Number(step + AFTER, norm, pairs))
        at_once = pl_module.device.type == "cpu" and trainer.world_size == 1
        if at_once or step - self.unseen[0].place + 1 >= self.every:
            self._look(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._look(trainer)
        for name, weight in pl_module.named_parameters():  # a rate too high breaks them, too
            if not _is_finite(weight):
                self._stop(f"the weights {name} are not finite after step {trainer.global_step}")

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.on_validation_start(trainer, pl_module)

    def _look(self, trainer: Trainer) -> None:
        unseen, self.unseen = self.unseen, []
        if not unseen:  # here as in every process
            return
        finite = torch.stack([each.value.isfinite() for each in unseen]).tolist()
        broken = next((each for each, good in zip(unseen, finite, strict=True) if not good), None)
        here = torch.tensor(NEVER if broken is None else broken.place, dtype=torch.float64)
        here = here.to(trainer.strategy.root_device)
        # the earliest of all processes; what comes later only follows from it
        place = float(trainer.strategy.reduce(here, reduce_op="min"))
        if place == NEVER:
            return
        step, kind = int(place), "loss" if place.is_integer() else "gradient"
        if broken is not None and broken.place == place:
            pairs, writes = broken.pairs.tolist(), True
            if kind == "gradient":  # the same in all processes, of the pairs of all
                pairs, writes = _of_all(pairs, trainer), trainer.is_global_zero
            texts = {side: at(self.text, side, pairs) for side in ("source", "target")}
            record = {"step": step, kind: str(broken.value.item()), "pairs": pairs, **texts}
            if writes:
                with replacing(self.run / NOT_FINITE) as file:
                    file.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())
        self._stop(
            f"the {kind} is not finite at step {step} (its training pairs: {self.run / NOT_FINITE})"
        )

    def _stop(self, finding: str) -> NoReturn:
        remedy = "lower optimizer.learning_rate or raise schedule.warmup_steps in a new run"
        if (self.run / "checkpoints" / "last.ckpt").exists():
            remedy += "; the last checkpoint is intact"
        raise UserError(f"{finding}: {remedy}")


def _of_all(pairs: list[int], trainer: Trainer) -> list[int]:
    """Gather the pairs of all processes, which all ask at once."""
    if trainer.world_size == 1:
        return pairs
    gathered: list[list[int]] = [[]] * trainer.world_size
    processes.all_gather_object(gathered, pairs)
    return [*itertools.chain.from_iterable(gathered)]


def _is_finite(weights: Tensor) -> bool:
    """Tell of all weights, of which this process may have a shard: all processes find alike."""
    finite = weights.isfinite().all()
    return bool(finite.full_tensor() if isinstance(finite, DTensor) else finite)
