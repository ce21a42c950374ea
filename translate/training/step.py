"""One training step: the LightningModule, and means of its losses for people to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from jaxtyping import Float
from lightning.pytorch.strategies import Strategy
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from translate.attention.masks import padding_mask
from translate.attention.packed import Packing
from translate.data.batching import Batch
from translate.models.seq2seq import Decoded, Seq2Seq
from translate.training.objectives import (
    CrossEntropy,
    Guidance,
    Losses,
    Objective,
    RDrop,
    drop_words,
    projected_loss,
)
from translate.training.optim import renew_rates
from translate.training.settings import TrainingConfig

Read = Callable[..., Decoded]  # as `Seq2Seq.read`
Figures = dict[str, tuple[Tensor, Tensor]]  # name → total, count
Mix = Callable[..., tuple[Tensor, Figures]]  # as `MinimumRisk.mix`

# Summed losses are divided by this before the backward pass, to keep float16 in range; the tokens
# that a step really had are known only after its last batch.
NOMINAL_TOKENS = 1_000.0


def ends_step(trainer: L.Trainer, batch_idx: int) -> bool:
    """Tell whether the optimizer has taken a step after this batch, rather than wait for more."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def is_due(trainer: L.Trainer) -> bool:
    """Tell whether a validation is a regular one, rather than one more where a call ends.

    Patience and plateaus count the regular ones alone, so that a run learns the same in however
    many calls.
    """
    batches = trainer.global_step * trainer.accumulate_grad_batches
    return batches % trainer.val_check_interval == 0


class RunningMeans:
    """Means of losses and the like since the last report, by name.

    A batch has sentences of like length, and its loss tells that more than how training goes. Sums
    stay on the device: to look at one is to wait for a GPU.
    """

    def __init__(self) -> None:
        self.sums: Figures = {}

    def add(self, name: str, total: Tensor, count: Tensor) -> None:
        if name in self.sums:
            total, count = (a + b for a, b in zip((total, count), self.sums[name], strict=True))
        self.sums[name] = total.detach(), count

    def here(self) -> dict[str, float]:
        """Return the means of this process."""
        return {name: float(total / count) for name, (total, count) in self.sums.items()}

    def everywhere(self, strategy: Strategy) -> dict[str, float]:
        """Return the means of all processes together, which all ask at once."""
        sums = self.summed(strategy)
        return {name: float(total / count) for name, (total, count) in sums.items()}

    def summed(self, strategy: Strategy) -> Figures:
        """Return the sums of all processes together, which all ask at once."""
        return {
            name: (strategy.reduce(total.clone(), reduce_op="sum"),
                   strategy.reduce(count.clone(), reduce_op="sum"))
            for name, (total, count) in self.sums.items()
        }  # fmt: skip

    def begin_with(self, sums: Figures, *, main: bool) -> None:
        """Go on from what all had together: the main process has it, and the others nothing."""
        share = int(main)
        self.sums = {name: (total * share, count * share) for name, (total, count) in sums.items()}

    def clear(self) -> None:
        """Begin anew, after a report."""
        self.sums = {}


class TranslationTask(L.LightningModule):
    """Maximum likelihood with label smoothing, teacher-forced.

    Args:
        compiler: makes a program of how the model reads a batch, for training alone.
        packed_from: tokens of a batch's longest sentence from which on its sentences lie end to end
            (`resources.packed_from`) instead of padded.
        total_steps: optimizer steps of the whole run, which some schedules need.
        tags: pieces of the source vocabulary that word dropout leaves alone.
        mix: changes the loss of tokens, if given, and says what to report (minimum risk).

    Raises:
        UserError: the model has no head that could learn given alignments, which are asked for.
    """

    def __init__(
        self,
        model: Seq2Seq,
        config: TrainingConfig,
        *,
        compiler: Callable[[Read], Read] | None,
        packed_from: int,
        total_steps: int,
        tags: int = 0,
        mix: Mix | None = None,
    ) -> None:
        super().__init__()
        trainer = config.trainer
        self.model, self.config, self.mix = model, config, mix
        self.guidance = Guidance.build(model, trainer.guided_alignment)
        self.compiled = model.read if compiler is None else compiler(model.read)
        self.objective: Objective = CrossEntropy(trainer.label_smoothing)
        if trainer.r_drop:
            self.objective = RDrop(trainer.r_drop, CrossEntropy(trainer.label_smoothing))
        self.packed_from, self.total_steps, self.tags = packed_from, total_steps, tags
        self.step_tokens = torch.zeros(())  # real target tokens since the last optimizer step
        self.step_norm: Tensor | None = None  # of the last step's gradient, before it was clipped
        self.means = RunningMeans()
        self.weights: list[nn.Parameter] = []  # to look for them in each step takes time

    @property
    def evaluated(self) -> Seq2Seq:
        """The model that validation computes with, whole in each process."""
        return self.model

    def losses(self, batch: Batch, objective: Objective) -> Losses:
        """Return sums over the real target tokens; only these rows meet the vocabulary."""
        sources = Packing(batch.source_lengths, batch.source.shape[1], batch.source_tokens)
        targets = Packing(batch.target_lengths, batch.target_in.shape[1], batch.target_tokens)
        packed = max(sources.longest, targets.longest) >= self.packed_from
        read = self._read_packed if packed else self._read_padded
        hidden, alignment = read(batch, sources, targets)
        output = (self.model if self.training else self.evaluated).output
        losses = projected_loss(
            hidden, output.weight, output.bias, targets.pack(batch.target_out), objective
        )
        if self.guidance is None or batch.gold is None or alignment is None:
            return losses
        guided = self.guidance.loss(alignment, batch.gold) / objective.passes
        return losses._replace(guided=guided)

    def _read_padded(
        self, batch: Batch, sources: Packing, targets: Packing
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "B L H T S"] | None]:
        read = self.compiled if self.training else self.evaluated.read
        decoded = read(
            batch.source, padding_mask(sources.lengths, sources.longest), batch.target_in,
            need_alignment=batch.gold is not None,
        )  # fmt: skip
        return targets.pack(decoded.hidden), decoded.alignment

    def _read_packed(
        self, batch: Batch, sources: Packing, targets: Packing
    ) -> tuple[Float[Tensor, "M D"], None]:
        model = self.model if self.training else self.evaluated
        source, target_in = sources.pack(batch.source), targets.pack(batch.target_in)
        return model.read_packed(source, target_in, sources, targets), None

    def training_losses(self, batch: Batch) -> Losses:
        """Return the losses in training: as many passes as the objective needs, words dropped."""
        if self.objective.passes > 1:
            batch = batch.repeated(self.objective.passes)
        batch = drop_words(batch, self.config.trainer.word_dropout, tags=self.tags)
        return self.losses(batch, self.objective)

    def on_train_start(self) -> None:
        """Take up another `trainer.max_steps`: it is another schedule, from the next step on.

        Lightning brings back the rate that the old one had for it, which may be 0.
        """
        self.weights = [*self.parameters()]
        for config in self.trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, LambdaLR):
                renew_rates(config.scheduler)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # dropout depends on the place in the run alone, so that a resumed run repeats it exactly
        seed = (self.config.seed * 1_000_003 + batch_idx) * 1_009 + self.global_rank
        # torch.manual_seed would keep a traceback for each kind of device that is not there
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        tokens = batch.target_lengths.sum()
        losses = self.training_losses(batch)
        loss = losses.smoothed
        if self.mix is not None:
            loss, figures = self.mix(self.model, batch, loss, step=self.trainer.global_step)
            for name, (total, count) in figures.items():
                self.means.add(name, total, count)
        loss = loss / NOMINAL_TOKENS
        if self.guidance is not None and losses.guided is not None:
            loss = loss + self.guidance.weight * losses.guided / NOMINAL_TOKENS
            self.means.add("train/guided_loss", losses.guided, tokens)
        self.step_tokens = self.step_tokens.to(tokens.device) + tokens
        # shown without smoothing, so that exp(loss) is a perplexity and compares with dev/loss
        self.means.add("train/loss", losses.nll, tokens)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        nll = self.losses(batch, CrossEntropy(smoothing=0.0)).nll / batch.target_tokens
        self.log("dev/loss", nll, batch_size=batch.target_tokens, on_epoch=True, sync_dist=True)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Divide the gradient by the tokens of the whole step, then clip it to a norm.

        Every token of the step counts the same, whichever batch or process it came from: Lightning
        averages over both. It also refuses to clip for fused optimizers under float16, where
        gradients arrive multiplied by the scaler's scale. So they are unscaled and clipped here.
        Where they overflow, the scaler skips the step: its norm is not shown.
        """
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            scaler.unscale_(optimizer)
        tokens = self.trainer.strategy.reduce(self.step_tokens, reduce_op="sum")
        averaged_over = self.trainer.accumulate_grad_batches * self.trainer.world_size
        scale = averaged_over * NOMINAL_TOKENS / tokens
        norm = self.gradient_norm() * scale
        if scaler is None:
            self.step_norm = norm
            self.means.add("train/gradient_norm", norm, torch.ones_like(norm))
        if gradient_clip_val:
            scale = scale * (gradient_clip_val / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(self.gradients(), scale)
        self.step_tokens = torch.zeros(())

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Drop gradients with their step, so that the next forward has their memory."""
        super().optimizer_step(*args, **kwargs)
        for weight in self.weights:
            weight.grad = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["learning_rate"] = self.config.optimizer.learning_rate
        checkpoint["means"] = self.means.summed(self.trainer.strategy)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._keep_rate(checkpoint)
        # runs of before had none
        self.means.begin_with(checkpoint.get("means", {}), main=self.trainer.is_global_zero)

    def _keep_rate(self, checkpoint: dict[str, Any]) -> None:
        """Put a learning rate that is another than the checkpoint's into it, before it is read."""
        peak = self.config.optimizer.learning_rate
        for optimizer in checkpoint.get("optimizer_states", ()):
            for group in optimizer["param_groups"]:
                before = checkpoint.get("learning_rate", group.get("initial_lr", peak))
                if before != peak:
                    group |= {"lr": group["lr"] * peak / before, "initial_lr": peak}
        for schedule in checkpoint.get("lr_schedulers", ()):
            if "base_lrs" in schedule:
                schedule["base_lrs"] = [peak] * len(schedule["base_lrs"])

    def gradients(self) -> list[Tensor]:
        """Return this process's part of the gradient, to be changed in place."""
        return [p.grad for p in self.weights if p.grad is not None]

    def gradient_norm(self) -> Tensor:
        """Return the norm of the whole gradient."""
        # not of `gradients()`, which are this process's parts where weights are sharded
        return get_total_norm([p.grad for p in self.weights if p.grad is not None])

    def configure_optimizers(self) -> Any:
        optimizer = self.config.optimizer.build(self.model)
        schedule = self.config.schedule.attach(optimizer, self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": schedule}
