"""Looking at dev translations while a model is trained, and keeping the best."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import matplotlib.image
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from translate.data.corpus import Corpus
from translate.errors import UserError
from translate.evaluation.metrics import bleu, choose_tokenizer, part_bleu
from translate.inference import bundle
from translate.inference.translator import Translator
from translate.names import on_demand
from translate.search import Search
from translate.training import provenance
from translate.training.module import TranslationTask
from translate.training.steps import is_due
from translate.wording import counted

log = logging.getLogger(__name__)

HEATMAP = "translate.extras.attention_pictures:heatmap"
MOST_DRAWN = 200  # pieces of a sample's source: more are no picture any more


class DevTranslations(Callback):
    """Translates dev sentences at each validation, logs BLEU, and keeps the best bundle.

    Must come before weight averaging in the list of callbacks: it then sees averaged weights.

    Args:
        sentences: at most so many dev sentences, the first ones, count for BLEU.
        samples: so many are shown, the first with its attention.
        tokenize: BLEU's tokenizer, where the run has begun with one: scores of two do not compare.
        recorded: the best score, to two digits, in the record of a run that goes on.
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
        tokenize: str | None = None,
        recorded: float | None = None,
    ) -> None:
        rows = corpus.dev.slice(0, sentences)
        self.sources, self.references = (
            rows.column(name).to_pylist() for name in ("source", "references")
        )
        first = "" if len(rows) == len(corpus.dev) else f"the first {len(rows):,} of "
        self.judged_by = first + counted(len(corpus.dev), "sentence")
        self.tokenize = choose_tokenizer(tokenize, corpus.target_language, self.references)
        self.corpus, self.search, self.config, self.run = corpus, search, config, run
        self.samples, self.tokens_per_batch = samples, tokens_per_batch
        self.best, self.recorded = -1.0, recorded
        self.last_step = -1

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        perfect = [max(item, key=len) for item in self.references]
        found = part_bleu(perfect, self.references, tokenize=self.tokenize)
        if trainer.is_global_zero and found is None:
            log.warning(
                "no dev reference has four tokens, so dev BLEU stays 0: the model of the last "
                "validation will be kept"
            )

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, TranslationTask)
        loss = float(trainer.callback_metrics["dev/loss"])  # of all processes, which all ask
        own = self._translate(trainer, pl_module, loss) if trainer.is_global_zero else 0.0
        # a number: a tensor would come to every process on the device of the first
        score = trainer.strategy.broadcast(own)
        pl_module.log("dev/bleu", score, sync_dist=True)  # equal everywhere already
        self.last_step = trainer.global_step
        if trainer.state.fn == TrainerFn.FITTING and is_due(trainer):
            _lower_on_plateau(trainer, score)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]
        # a validation of no step but the end, after the last checkpoint, is in the record alone
        if self.recorded is not None and self.recorded > round(self.best, 2):
            self.best = self.recorded

    def _translate(self, trainer: L.Trainer, task: TranslationTask, loss: float) -> float:
        step = trainer.global_step
        started = time.monotonic()
        translator = Translator(
            task.evaluated,
            self.corpus.tokenizers,
            self.search,
            tokens_per_batch=self.tokens_per_batch,
            device=task.device,
        )
        hypotheses = translator.translate(self.sources)
        # in float32, as it is logged: best.ckpt and the bundle go by the same number
        score = torch.tensor(bleu(hypotheses, self.references, tokenize=self.tokenize)).item()
        seconds = time.monotonic() - started
        beside = "the best so far" if score >= self.best else f"best {self.best:.2f}"
        log.info(
            "step %d: dev BLEU %.2f on %s (%.0f s), %s; dev loss %.3f, perplexity %.2f",
            step, score, self.judged_by, seconds, beside, loss, torch.tensor(loss).exp(),
        )  # fmt: skip
        if self.samples:
            shown = list(zip(self.sources, self.references, hypotheses, strict=True))
            text = "\n\n".join(_side_by_side(*sample) for sample in shown[: self.samples])
            log.info("%s", text)
        if score >= self.best:  # of equals the later one, as `BestCheckpoints` has it
            self.best = score
            self._save_bundle(task, step)
        if self.samples:  # when the model is safe: a picture may fail
            _to_tensorboard(trainer, text, self._draw_attention(translator, step))
        return score

    def _draw_attention(self, translator: Translator, step: int) -> Path | None:
        """The first sample's alignment, averaged over layers and heads; None: there is none."""
        if len(self.corpus.tokenizers.source.encode(self.sources[0])) > MOST_DRAWN:
            return None
        try:
            attention = translator.align(self.sources[0])
        except UserError:  # a model without attention has nothing to draw
            return None
        picture = self.run / "plots" / f"attention-{step:06d}.png"
        try:
            on_demand(HEATMAP)(
                attention.source_pieces,
                attention.target_pieces,
                attention.weights.mean(axis=(0, 1)),
                picture,
            )
        except UserError as error:
            log.warning("%s; the run goes on without it", error)
            return None
        return picture

    def _save_bundle(self, task: TranslationTask, step: int) -> None:
        family, options = self.config["model"]["family"], dict(self.config["model"])
        del options["family"]
        bundle.save(
            self.run / "bundle",
            family=family,
            options=options,
            model=task.evaluated,
            tokenizers=self.corpus.tokenizers,
            languages=(self.corpus.source_language, self.corpus.target_language),
            search=self.config["search"],
            extra={"dev_bleu": round(self.best, 2), "step": step, "corpus": self.config["data"]},
            taught=None if task.guidance is None else task.guidance.head,
        )
        provenance.write(self.run, best_step=step)


def _lower_on_plateau(trainer: L.Trainer, score: float) -> None:
    """Tell the plateau schedule, before the validation is saved.

    Lightning does so at the end of an epoch, of which a run has one.
    """
    for config in trainer.lr_scheduler_configs:
        if isinstance(config.scheduler, ReduceLROnPlateau):
            config.scheduler.step(score)


def _side_by_side(source: str, references: list[str], hypothesis: str) -> str:
    return f"  source      {source}\n  reference   {references[0]}\n  hypothesis  {hypothesis}"


def _to_tensorboard(trainer: L.Trainer, samples: str, picture: Path | None) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            writer, step = logger.experiment, trainer.global_step
            writer.add_text("dev/samples", f"```\n{samples}\n```", step)  # verbatim, not Markdown
            if picture is not None:
                pixels = matplotlib.image.imread(picture)
                writer.add_image("dev/attention", pixels, step, dataformats="HWC")
