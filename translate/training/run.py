"""One training run, from its configuration to a finished folder."""

from __future__ import annotations

import itertools
import logging
import shlex
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback

from translate.attention.dot_product import leave_out_cudnn
from translate.data.corpus import Corpus, prepare
from translate.data.module import TranslationData
from translate.data.tokenizer import own_vocabulary
from translate.errors import UserError
from translate.files import locked, refuse_links, remove_half_written, remove_temporaries
from translate.machine import keep_memory, threads_restored
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.names import on_demand
from translate.search import build as build_search
from translate.training import preflight, records, resources
from translate.training.averaging import AveragedWeights
from translate.training.callbacks import NOT_FINITE, Budget, DevTranslations, StopWhenNotFinite
from translate.training.checkpoints import AtomicCheckpointIO, LastCheckpoint, foreign
from translate.training.launch import is_first_process, refuse_other_launch, started_by_the_first
from translate.training.resources import on_gpu
from translate.training.settings import Precision, TrainingConfig, flat, read_config
from translate.training.step import Read, TranslationTask
from translate.training.threads import ThreadsBesideOthers
from translate.training.trainer import build_trainer, ending_together, quieten_lightning

log = logging.getLogger(__name__)

FIND_ORIGIN = "translate.extras.fine_tuning:find_origin"
SHARDED = "translate.extras.sharding:ShardedTask"
COMPILER = "translate.extras.compilation:Compiler"
CHECK_COMPILER = "translate.extras.compilation:check_compiler"
TOKENS_THAT_FIT = "translate.extras.token_budget:tokens_that_fit"
MINIMUM_RISK = "translate.extras.minimum_risk:MinimumRisk"
CURVES = "translate.extras.figures:learning_curves"


class Interrupted(Exception):
    """A signal came; everything is saved, whether the run was at its end or not.

    Attributes:
        exit_code: 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM, 138 for SIGUSR1,
            129 for SIGHUP.
    """

    def __init__(self, number: int, run: Path, *, finished: bool) -> None:
        resume = shlex.join(["translate", "train", f"run={run}"])
        state = f"{run} is finished" if finished else f"everything is saved; resume with: {resume}"
        super().__init__(f"stopped by {signal.Signals(number).name}, {state}")
        self.exit_code = 128 + number


def train(config: TrainingConfig | Mapping[str, Any], run: Path, init: str | None = None) -> float:
    """Train, or go on with, the run in folder `run`; return its best dev BLEU, to two digits.

    Args:
        config: a configuration, or its nodes in plain containers.
        run: the folder; an interrupted run in it goes on.
        init: a run or bundle whose weights a new run begins from.

    Raises:
        UserError: anything a person can mend, before or while training; another process that
            trains in this folder.
        Interrupted: by Ctrl-C, SIGTERM, SIGHUP or SIGUSR1, after saving.
    """
    nodes = config if isinstance(config, TrainingConfig) else read_config(config)
    refuse_other_launch(resources.devices(nodes.trainer), nodes.trainer.num_nodes)
    with threads_restored():  # another run of a sweep may ask for none of its own
        if not is_first_process():
            return TrainingRun(nodes, run).train(init)
        refuse_links(run)
        with locked(run), records.logged_to(run / "train.log"):
            return TrainingRun(nodes, run).train(init)


class TrainingRun:
    """One call of `train` on a run folder: prepare, build, fit and finish.

    Attributes:
        last: the checkpoint that it goes on from, if there is one, and leaves behind.
        main: this is the first process of all.
        follows_others: nobody has chosen how many threads of the CPU compute.
        precision: what `auto` stands for; noted in the run's record, and found anew neither by a
            later call nor by another process.
    """

    corpus: Corpus
    model: Seq2Seq
    precision: Precision
    task: TranslationTask
    data: TranslationData
    follows_others: bool
    compiler: Any  # None: nothing is compiled
    stop: LastCheckpoint
    dev: DevTranslations
    trainer: L.Trainer

    def __init__(self, config: TrainingConfig, run: Path) -> None:
        self.config, self.run = config, run
        self.last = run / "checkpoints" / "last.ckpt"
        self.resuming, self.main = self.last.exists(), is_first_process()

    def train(self, init: str | None) -> float:
        """Go all the way; return the best dev BLEU."""
        self.prepare(init)
        self.build()
        with ending_together(self.trainer):
            self.fit()
            return self.finish()

    def prepare(self, init: str | None) -> None:
        """Refuse what can be refused before any work, then make the corpus and the model.

        A new run is recorded at once, so that it goes on wherever it is stopped.
        """
        config, run, trainer = self.config, self.run, self.config.trainer
        origin = self._check(init)
        if self.main:
            for folder in (run / "checkpoints", run):  # what a kill left of half-written files
                remove_temporaries(folder)
            remove_half_written(run / "bundle")
            (run / NOT_FINITE).unlink(missing_ok=True)  # of an earlier call
            if not self.resuming:
                # of an attempt that left no checkpoint
                (run / "metrics.csv").unlink(missing_ok=True)
                begun_from = None if origin is None else origin.facts
                self._record(init=begun_from, **records.further_call(run, 0))
        self._set_up_process()
        self.precision = resources.chosen_precision(
            trainer.precision, trainer.accelerator, nodes=trainer.num_nodes,
            noted=self._noted("precision"),
        )  # fmt: skip
        tokenizer = own_vocabulary(config.tokenizer, run) if self.resuming else config.tokenizer
        self.corpus = prepare(config.data, tokenizer, cache=Path(config.cache))
        if self.resuming:
            preflight.check_same_corpus(self.corpus, run)
        self.model = new_model(config, self.corpus)
        if origin is not None:
            origin.give_to(self.model, self.corpus.tokenizers)
        if self.main:
            preflight.check_room(run, self.model, trainer)
            gpu = on_gpu(trainer.accelerator)
            records.write(
                run, corpus=self.corpus.identity, precision=self.precision,
                parameters=sum(p.numel() for p in self.model.parameters()),
                accelerator="gpu" if gpu else "cpu", device=records.device_name(gpu=gpu),
                threads=torch.get_num_threads(),
            )  # fmt: skip

    def _check(self, init: str | None) -> Any:
        """Check all that needs no corpus; return the `Origin` that the run begins from, or None."""
        config, run, trainer = self.config, self.run, self.config.trainer
        preflight.check_machine_and_model(config)
        if self.main:
            preflight.check_writable(run)
        if self.resuming:
            preflight.check_same_configuration(config.dump(), run)
        else:
            preflight.check_nothing_lost(run)
        origin = None
        if init is not None or records.noted(run, "init"):
            origin = on_demand(FIND_ORIGIN)(run, init, config, resuming=self.resuming)
        if self.main and not self.resuming:
            preflight.check_new(config, from_nothing=origin is None)
        if self.main and trainer.compile:
            on_demand(CHECK_COMPILER)(trainer.accelerator)
        return origin

    def _set_up_process(self) -> None:
        """Set what holds for the whole process."""
        trainer = self.config.trainer
        quieten_lightning()
        keep_memory()
        resources.multiply_in(trainer.precision)
        if on_gpu(trainer.accelerator):
            leave_out_cudnn()
        if isinstance(trainer.threads, int):
            torch.set_num_threads(trainer.threads)
        L.seed_everything(self.config.seed, verbose=False)

    def build(self) -> None:
        """Make what trains the model; say what is about to happen."""
        config, run, trainer = self.config, self.run, self.config.trainer
        packed_from = resources.packed_from(
            trainer.packing, self.model, accelerator=trainer.accelerator,
            precision=self.precision, guided=trainer.guides, compiled=trainer.compile,
        )  # fmt: skip
        task_of = partial(new_task, config, self.model, self.corpus, packed_from=packed_from)
        self.data = new_data(config, self.corpus)
        preflight.check_lengths(self.model, self.data)
        self.data.tokens_per_batch = self._tokens_per_batch(task_of(total_steps=1, compiler=None))
        steps = total_steps_of(config, self.data, self.last)
        self.compiler = on_demand(COMPILER)("inductor") if trainer.compile else None
        self.task = task_of(total_steps=steps, compiler=self.compiler)
        self.stop = LastCheckpoint(
            self.last, save_every=trainer.save_every, validate_every=trainer.validate_every,
            total_steps=steps, max_minutes=trainer.max_minutes,
        )  # fmt: skip
        self.dev = DevTranslations(
            config, self.corpus, run,
            # a beam would cost more than it tells
            search=build_search({"kind": "greedy", **config.length_limits}),
            tokens_per_batch=self.data.tokens_per_batch,
            tokenize=self._noted("bleu_tokenizer"),
        )  # fmt: skip
        if self.main:
            records.write(run, bleu_tokenizer=self.dev.tokenize)
        self.trainer = build_trainer(
            trainer, run, steps, self._callbacks(steps), self.stop, precision=self.precision
        )
        plan = preflight.plan(
            config, run, self.model, self.data, steps=steps, processes=self.trainer.world_size,
            precision=self.precision, resuming=self.resuming,
        )  # fmt: skip
        log.info("%s", plan)
        for logger in self.trainer.loggers:
            logger.log_hyperparams(flat(config.dump()))

    def _callbacks(self, steps: int) -> list[Callback]:
        config, run = self.config, self.run
        guard = StopWhenNotFinite(run, every=config.trainer.log_every, text=self.corpus.train)
        callbacks: list[Callback] = [guard, self.dev, Budget(run)]
        if config.trainer.threads == "follow" and not on_gpu(config.trainer.accelerator):
            callbacks.append(ThreadsBesideOthers(torch.get_num_threads()))
        if config.trainer.averages:
            callbacks.append(AveragedWeights(config.trainer.averaging, total_steps=steps))
        if self.main and self.resuming:  # a run that may not go on, damaged, stays as recorded
            callbacks.append(LambdaCallback(on_train_start=lambda trainer, _: self._record(
                **records.further_call(run, trainer.global_step)
            )))  # fmt: skip
        return callbacks

    def _tokens_per_batch(self, task: TranslationTask) -> int:
        """Return the tokens of one side of a batch: a part of the run, which `auto` finds once."""
        asked = self.config.data.tokens_per_batch
        if asked != "auto":
            return asked
        if self._is_noted:
            return int(records.read(self.run)["tokens_per_batch"])
        tokens: int = on_demand(TOKENS_THAT_FIT)(
            task, longest=self.data.planned.extent.longest, precision=self.precision
        )
        log.info("data.tokens_per_batch: %d per side", tokens)
        records.write(self.run, tokens_per_batch=tokens)
        return tokens

    def fit(self) -> None:
        """Take the steps and validate, until the run or this call is at its end."""
        try:
            checkpoint = self.last if self.resuming else None
            self.trainer.fit(self.task, self.data, ckpt_path=checkpoint)
        except UserError:
            raise
        except Exception as error:
            if (explained := self._explained(error)) is None:
                raise
            raise explained from error
        if self.compiler is not None:
            log.info("%s", self.compiler.account())
        preflight.check_not_shorter(
            self.run, self.config.trainer, self.trainer.global_step, total=self.stop.total_steps
        )
        if self.resuming and self.main:  # Lightning starts nothing where no step is left
            self._record()

    def _explained(self, error: Exception) -> UserError | None:
        """Return what to do about an error of PyTorch or Lightning; None where it is ours."""
        if resources.out_of_memory(error):
            full = "the GPU" if isinstance(error, torch.OutOfMemoryError) else "this machine"
            return UserError(
                f"{full} ran out of memory at step {self.trainer.global_step + 1}, with "
                f"data.tokens_per_batch = {self.data.tokens_per_batch}: start a new run with "
                "fewer, and trainer.accumulate to keep as many per step, or set "
                "trainer.activation_checkpointing=true unless the model is recurrent; resume "
                "this run if another program had filled the memory"
            )
        # a stranger's file may say anything; what it says is restored before the first step
        return foreign(self.last, error) if self.resuming and not self.stop.begun else None

    def finish(self) -> float:
        """Judge the last step, draw the curves, note how the run ended; return the best BLEU."""
        trainer, stop, run = self.trainer, self.stop, self.run
        number = stop.signalled()
        if number is not None and stop.interrupted:
            raise Interrupted(number, run, finished=False)
        if self.dev.last_step != trainer.global_step:
            trainer.validate(self.task, self.data, verbose=False)
        best = round(trainer.strategy.broadcast(self.dev.best), 2)  # one process knows it
        # what was out of time goes on by the same command, as often as it takes
        status = "unfinished" if stop.out_of_time else "finished"
        if is_first_process():
            records.write(run, status=status, steps=trainer.global_step, dev_bleu=best)
            try:
                on_demand(CURVES)(run / "metrics.csv", run / "plots" / "learning_curves.png")
            except UserError as error:  # nothing of the run depends on it
                log.warning("%s", error)
            bundle = run / "bundle"
            log.info("%s: best dev BLEU %.2f; the translator is %s", self._ending(), best, bundle)
        if number is not None:
            # not before the first has come here: once another has ended so, Lightning kills the
            # first
            trainer.strategy.barrier()
            raise Interrupted(number, run, finished=not stop.out_of_time)
        return best

    def _ending(self) -> str:
        """Say what ended a run, where that was not its last step."""
        if self.trainer.global_step >= self.stop.total_steps:
            return "finished"
        cause = "time" if self.stop.out_of_time else "patience"
        return f"out of {cause} at step {self.trainer.global_step}/{self.stop.total_steps}"

    @property
    def _is_noted(self) -> bool:
        """Tell whether an earlier call or the first process has noted what `auto` stands for.

        An attempt that failed does not count.
        """
        return self.resuming or started_by_the_first()

    def _noted(self, fact: str) -> Any:
        """Return what `auto` was found to stand for; None where that is yet to be found."""
        return records.noted(self.run, fact) if self._is_noted else None

    def _record(self, **facts: Any) -> None:
        """Write down what the run begins with, or goes on with."""
        records.write_beginning(self.run, self.config.dump(), **facts)


def new_data(config: TrainingConfig, corpus: Corpus) -> TranslationData:
    """Make the batches of a corpus; their `tokens_per_batch` is still to be found."""
    data, guided = config.data, config.trainer.guides
    workers = data.workers
    if workers is None:
        # cutting text takes time; padding takes a CPU less of it than fetching from a worker
        workers = int(config.samples_pieces or guided or on_gpu(config.trainer.accelerator))
    return TranslationData(
        corpus,
        max_length=data.max_length,
        tokens_per_batch=0,
        pool_batches=data.pool_batches,
        modifiers=data.modifiers,
        short=data.short,
        workers=workers,
        sampling=config.samples_pieces,
        guided=guided,
        seed=config.seed,
    )


def total_steps_of(config: TrainingConfig, data: TranslationData, last: Path) -> int:
    """Return the optimizer steps of the whole run, of each process: those taken and those left.

    Raises:
        UserError: its epochs have not the batches of a single step.
    """
    trainer = config.trainer
    if trainer.max_epochs is None:
        assert trainer.max_steps is not None  # TrainerConfig sees to it
        return trainer.max_steps
    taken, done, begun = 0, 0, (0, 0)
    if last.exists():  # by perhaps another number of processes
        state = AtomicCheckpointIO().load_checkpoint(last)
        try:
            taken, of_data = int(state["global_step"]), state[type(data).__qualname__]
            done = int(of_data["batches_done"])
            epoch, batches = map(int, of_data.get("epoch_begun", begun))
            begun = epoch, batches
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise foreign(last, error) from error
    epoch, count = begun if begun[0] < trainer.max_epochs else (0, 0)
    of_step = resources.processes(trainer) * trainer.accumulate
    enough = None
    if trainer.max_steps is not None:  # which may end the run before its epochs do
        enough = max(done + (trainer.max_steps - taken) * of_step - count, 0)
    epochs = map(data.batches().epoch, range(epoch, trainer.max_epochs))
    left = itertools.chain.from_iterable(epochs)
    count += sum(1 for _ in itertools.islice(left, enough))
    steps = taken + (count - done) // of_step
    if steps < 1:
        raise UserError(
            f"a step of {of_step:,} batches (trainer.accumulate = {trainer.accumulate}, in each "
            f"process) is more than trainer.max_epochs = {trainer.max_epochs} has, {count:,}: "
            "lower trainer.accumulate, or train longer"
        )
    return min(steps, trainer.max_steps) if trainer.max_steps else steps


def new_model(config: TrainingConfig, corpus: Corpus) -> Seq2Seq:
    """Make a model for the corpus's vocabularies, with random weights."""
    model = registry.build(
        config.model,
        source_vocab_size=len(corpus.tokenizers.source),
        target_vocab_size=len(corpus.tokenizers.target),
    )
    model.recompute = config.trainer.activation_checkpointing
    if config.trainer.precision == "64-true":
        model.double()  # before its bytes are counted
    return model


def new_task(
    config: TrainingConfig,
    model: Seq2Seq,
    corpus: Corpus,
    *,
    compiler: Callable[[Read], Read] | None,
    packed_from: int,
    total_steps: int,
) -> TranslationTask:
    """Make the training step of the model, in a run of `total_steps`."""
    trainer, mix = config.trainer, None
    if trainer.minimum_risk.weight:
        mix = on_demand(MINIMUM_RISK)(
            trainer.minimum_risk, seed=config.seed, limits=config.length_limits,
            tokenizer=corpus.tokenizers.target, references=corpus.train,
        ).mix  # fmt: skip
    task: type[TranslationTask] = (
        on_demand(SHARDED) if trainer.strategy == "fsdp" else TranslationTask
    )
    return task(
        model, config, compiler=compiler, packed_from=packed_from, total_steps=total_steps,
        tags=len(corpus.tokenizers.source.tags), mix=mix,
    )  # fmt: skip
