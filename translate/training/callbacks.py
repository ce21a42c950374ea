"""What happens around the steps: speed, interrupts, and looking at dev translations."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar

from translate.data.batching import Batch
from translate.data.corpus import Corpus
from translate.errors import UserError
from translate.evaluation.metrics import bleu
from translate.inference import bundle
from translate.inference.translator import Translator
from translate.models.seq2seq import Seq2Seq
from translate.plots.attention import heatmap
from translate.search import Search
from translate.training.module import TranslationTask

log = logging.getLogger(__name__)


class StepsBar(RichProgressBar):
    """One bar over the whole run, on stderr: the stream of batches itself has no end."""

    def __init__(self, batches: int) -> None:
        super().__init__(console_kwargs={"stderr": True})
        self.batches = batches

    @property
    def total_train_batches(self) -> int:
        return self.batches

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        metrics = super().get_metrics(trainer, pl_module)
        del metrics["v_num"]  # a number that only Lightning's own folders have
        return metrics


class Throughput(Callback):
    """Logs tokens/s and the learning rate, and (without a progress bar) a line now and then.

    Tokens are real (not padding) source and target tokens, </s> included; validation time is
    not counted.
    """

    def __init__(self, *, every: int, total_steps: int, lines: bool) -> None:
        self.every, self.total_steps, self.lines = every, total_steps, lines
        self.tokens = 0
        self.seconds = 0.0
        self.started = self.batch_started = 0.0
        self.first_step = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = self.batch_started = time.monotonic()
        self.first_step = trainer.global_step

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.batch_started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        now = time.monotonic()
        self.seconds += now - self.batch_started
        self.batch_started = now
        self.tokens += int(batch.source_lengths.sum() + batch.target_lengths.sum())
        step = trainer.global_step
        if step % self.every or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        speed = self.tokens * trainer.world_size / self.seconds
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        pl_module.log("tokens_per_second", speed, prog_bar=True)
        pl_module.log("learning_rate", rate, prog_bar=True)
        if self.lines:
            left = (now - self.started) / (step - self.first_step) * (self.total_steps - step)
            loss = float(trainer.callback_metrics["train/loss"])
            log.info(
                "step %d/%d  loss %.3f  %.0f tokens/s  learning rate %.2e  %d:%02d left",
                step, self.total_steps, loss, speed, rate, *divmod(round(left), 60),
            )  # fmt: skip
        self.tokens, self.seconds = 0, 0.0


class StopAtStep(Callback):
    """Saves after the last step; Ctrl-C and SIGTERM make the present one the last.

    A second Ctrl-C does not wait. Must come before `trainer.fit` ends and averaged weights replace
    the trained ones, so that what is saved can go on.
    """

    def __init__(self, checkpoint: Path, *, total_steps: int) -> None:
        self.checkpoint, self.total_steps = checkpoint, total_steps
        self.signal: int | None = None
        self.saved = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number
            log.warning("stopping after this step (once more: at once)")
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, note)
        signal.signal(signal.SIGTERM, note)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        between_steps = (args[-1] + 1) % trainer.accumulate_grad_batches == 0
        last = self.signal is not None or trainer.global_step >= self.total_steps
        if last and between_steps and not self.saved:
            trainer.save_checkpoint(self.checkpoint)
            self.saved = True
            trainer.should_stop = True


class DevTranslations(Callback):
    """Translates dev sentences at each validation, logs BLEU, and keeps the best bundle.

    Must come before weight averaging in the list of callbacks: it then sees averaged weights.

    Args:
        sentences: at most so many dev sentences count for BLEU.
        samples: so many are shown, the first with its attention.
    """

    def __init__(
        self,
        *,
        corpus: Corpus,
        search: Search,
        config: Mapping[str, Any],
        run: Path,
        sentences: int,
        samples: int,
        tokens_per_batch: int,
    ) -> None:
        rows = corpus.dev[:sentences]
        self.sources, self.references = rows["source"], rows["references"]
        self.corpus, self.search, self.config, self.run = corpus, search, config, run
        self.samples, self.tokens_per_batch = samples, tokens_per_batch
        self.best = -1.0
        self.last_step = -1

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.sanity_checking:
            return
        assert isinstance(pl_module, TranslationTask)
        score = torch.zeros((), device=pl_module.device)
        if trainer.is_global_zero:
            with torch.random.fork_rng():
                score += self._translate(pl_module, trainer.global_step)
        score = trainer.strategy.broadcast(score)
        pl_module.log("dev/bleu", score, prog_bar=True, sync_dist=True)  # equal everywhere already
        self.last_step = trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]

    def _translate(self, task: TranslationTask, step: int) -> float:
        started = time.monotonic()
        translator = Translator(
            task.model,
            self.corpus.tokenizers,
            self.search,
            tokens_per_batch=self.tokens_per_batch,
            device=task.device,
        )
        hypotheses = translator.translate(self.sources)
        score = bleu(hypotheses, self.references)
        seconds = time.monotonic() - started
        log.info(
            "step %d: dev BLEU %.2f on %d sentences (%.0f s)", step, score, len(hypotheses), seconds
        )
        for index in range(min(self.samples, len(hypotheses))):
            log.info("  source      %s", self.sources[index])
            log.info("  reference   %s", self.references[index][0])
            log.info("  hypothesis  %s", hypotheses[index])
        if self.samples:
            self._draw_attention(translator, step)
        if score > self.best:
            self.best = score
            self._save_bundle(task.model, step)
        task.model.train()
        return score

    def _draw_attention(self, translator: Translator, step: int) -> None:
        """The first sample's alignment, averaged over layers and heads."""
        try:
            attention = translator.align(self.sources[0])
        except UserError:  # a model without attention has nothing to draw
            return
        heatmap(
            attention.source_pieces,
            attention.target_pieces,
            attention.weights.mean(axis=(0, 1)),
            self.run / "plots" / f"attention-{step:06d}.png",
        )

    def _save_bundle(self, model: Seq2Seq, step: int) -> None:
        family, options = self.config["model"]["family"], dict(self.config["model"])
        del options["family"]
        bundle.save(
            self.run / "bundle",
            family=family,
            options=options,
            model=model,
            tokenizers=self.corpus.tokenizers,
            languages=(self.corpus.source_language, self.corpus.target_language),
            search=self.config["search"],
            extra={"dev_bleu": round(self.best, 2), "step": step, "corpus": self.config["data"]},
        )
