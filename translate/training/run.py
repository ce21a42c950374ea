"""One training run, from a validated configuration to a finished folder."""

from __future__ import annotations

import logging
import shlex
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
import yaml
from lightning.pytorch.callbacks import LambdaCallback

from translate.attention.dot_product import leave_out_cudnn
from translate.data.corpus import Corpus, prepare, read_nodes
from translate.data.module import TranslationData
from translate.data.tokenizer import own_vocabulary
from translate.errors import UserError
from translate.files import locked, remove_half_written, remove_temporaries, replacing
from translate.machine import keep_memory, threads_restored
from translate.models.seq2seq import Seq2Seq
from translate.names import on_demand
from translate.training import assembly, finite, packing, precision, provenance, token_budget
from translate.training.accelerator import on_gpu
from translate.training.budget import Budget
from translate.training.compilation import Compiler, check_compiler
from translate.training.dev_translations import DevTranslations
from translate.training.disk import check_room
from translate.training.fine_tuning import Origin, find_origin
from translate.training.finite import StopWhenNotFinite
from translate.training.last_checkpoint import LastCheckpoint
from translate.training.launch import (
    is_first_process,
    refuse_other_launch,
    started_by_the_first,
)
from translate.training.module import TranslationTask
from translate.training.plan import plan
from translate.training.refusals import (
    refuse_fewer_steps,
    refuse_longer_than_readable,
    refuse_other_configuration,
    refuse_other_corpus,
    refuse_random_weights,
    refuse_to_begin_over,
    refuse_unwritable,
    refuse_what_cannot_be_trained,
)
from translate.training.run_log import logged_to
from translate.training.settings import Settings, flat
from translate.training.trainer import (
    build_trainer,
    devices,
    ending_together,
    quieten_lightning,
)

log = logging.getLogger(__name__)

LEARNING_CURVES = "translate.extras.figures:learning_curves"


class Interrupted(Exception):
    """A signal came; everything is saved, whether the run was at its end or not.

    Attributes:
        exit_code: 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM, 138 for SIGUSR1.
    """

    def __init__(self, number: int, run: Path, *, finished: bool) -> None:
        resume = shlex.join(["translate", "train", f"run={run}"])
        told = f"{run} is finished" if finished else f"everything is saved; resume with: {resume}"
        super().__init__(f"stopped by {signal.Signals(number).name}, {told}")
        self.exit_code = 128 + number


def train(config: Mapping[str, Any], run: Path, init: str | None = None) -> float:
    """Train, or go on with, the run in folder `run`; returns its best dev BLEU, to two digits.

    Args:
        config: resolved and validated: the nodes data, tokenizer, model, optimizer, schedule,
            trainer, search and the scalars seed and cache.
        run: the folder; an interrupted run in it goes on.
        init: a run or bundle whose weights a new run begins from.

    Raises:
        UserError: anything a person can mend, before or while training; another process that
            trains in this folder.
        Interrupted: by Ctrl-C, SIGTERM or SIGUSR1, after saving.
    """
    options = Settings(**config["trainer"])
    refuse_other_launch(devices(options), options.num_nodes)
    with threads_restored():  # another run of a sweep may ask for none of its own
        if not is_first_process():
            return _train(config, run, init)
        with locked(run), logged_to(run / "train.log", spoken=(UserError, Interrupted)):
            return _train(config, run, init)


class _Call(NamedTuple):
    """One call of `train`, as it begins."""

    config: Mapping[str, Any]
    run: Path
    options: Settings
    last: Path  # the checkpoint that it goes on from, if there is one, and leaves behind
    resuming: bool
    main: bool  # the first process of all

    @property
    def settled(self) -> bool:
        """Whether it is noted what `auto` stands for.

        By an earlier call or the first process, that is; an attempt that failed does not count.
        """
        return self.resuming or started_by_the_first()

    def noted(self, fact: str) -> Any:
        """What `auto` was found to stand for; None where that is yet to be found."""
        return provenance.noted(self.run, fact) if self.settled else None


class _Made(NamedTuple):
    """What trains a run, ready to begin."""

    task: TranslationTask
    data: TranslationData
    trainer: L.Trainer
    stop: LastCheckpoint
    dev: DevTranslations
    compiler: Compiler | None


def _train(config: Mapping[str, Any], run: Path, init: str | None) -> float:
    options, last = Settings(**config["trainer"]), run / "checkpoints" / "last.ckpt"
    call = _Call(config, run, options, last, resuming=last.exists(), main=is_first_process())
    origin = _begin(call, init)
    made = _make(call, origin)
    with ending_together(made.trainer):
        _fit(made, run, last if call.resuming else None)
        refuse_fewer_steps(run, options, made.trainer.global_step, total=made.stop.total_steps)
        if call.resuming and call.main:  # Lightning begins nothing where no step is left
            _record_beginning(call)
        return _finish(made, run)


def _begin(call: _Call, init: str | None) -> Origin | None:
    """Refuse what can be refused before any work; what the run begins from.

    A new run is recorded at once, so that it goes on wherever it is stopped.
    """
    config, run, options, _, resuming, main = call
    refuse_what_cannot_be_trained(config, options)
    if main:
        refuse_unwritable(run)
    if resuming:
        refuse_other_configuration(config, run)
    else:
        refuse_to_begin_over(run)
    origin = find_origin(run, init, config, resuming=resuming)
    if origin is None and not resuming:
        refuse_random_weights(options)
    if main and not resuming and config["data"]["tokens_per_batch"] == "auto":
        token_budget.refuse_started_together(options)
    if main and options.compile:
        check_compiler(options.accelerator)
    if main:
        _remove_half_written(run)
        (run / finite.FILE).unlink(missing_ok=True)  # of an earlier call
        if not resuming:
            (run / "metrics.csv").unlink(missing_ok=True)  # of an attempt that left no checkpoint
            begun_from = None if origin is None else origin.facts  # not what another attempt had
            _record_beginning(call, init=begun_from, **provenance.further_call(run, 0))
    return origin


def _make(call: _Call, origin: Origin | None) -> _Made:
    """The corpus and the model, then what trains it; tells what is about to happen."""
    config, run, options, last, resuming, main = call
    _set_up(options, seed=config["seed"])
    numbers = precision.settled(
        options.precision, options.accelerator, nodes=options.num_nodes,
        noted=call.noted("precision"),
    )  # fmt: skip
    corpus, model = _corpus_and_model(call, origin)
    if main:
        check_room(run, model, averaged=options.averages, keep=options.keep)
        provenance.write(
            run, corpus=corpus.identity, precision=numbers,
            parameters=sum(p.numel() for p in model.parameters()),
            **provenance.computing(gpu=on_gpu(options.accelerator)),
        )  # fmt: skip
    task, data, compiler = _task_and_data(call, corpus, model, numbers)
    steps = task.total_steps
    stop = assembly.new_last_checkpoint(options, last, steps)
    dev = assembly.new_dev_translations(
        config, corpus, run, data.tokens_per_batch,
        tokenize=call.noted("bleu_tokenizer"),
        recorded=provenance.noted(run, "dev_bleu") if resuming else None,
    )  # fmt: skip
    if main:
        provenance.write(run, bleu_tokenizer=dev.tokenize)
    callbacks = [
        StopWhenNotFinite(run, every=options.log_every, text=corpus.train), dev, Budget(run),
        *assembly.new_averaging(options, steps),
    ]  # fmt: skip
    if main and resuming:  # a run that may not go on, its checkpoint damaged, stays as recorded
        callbacks.append(LambdaCallback(on_train_start=lambda trainer, _: _record_beginning(
            call, **provenance.further_call(run, trainer.global_step)
        )))  # fmt: skip
    trainer = build_trainer(options, run, steps, callbacks, stop, precision=numbers)
    told = plan(
        run, model, data, options, config["schedule"],
        steps=steps, processes=trainer.world_size, resuming=resuming, precision=numbers,
    )  # fmt: skip
    log.info("%s", told)
    for logger in trainer.loggers:
        logger.log_hyperparams(flat(config))
    return _Made(task, data, trainer, stop, dev, compiler)


def _corpus_and_model(call: _Call, origin: Origin | None) -> tuple[Corpus, Seq2Seq]:
    """The text, prepared, and a model for its vocabularies, before it has learned from it."""
    config, run, options, *_ = call
    data, tokenizer = read_nodes(config["data"], config["tokenizer"])
    if call.resuming:
        tokenizer = own_vocabulary(tokenizer, run)
    corpus = prepare(data, tokenizer, cache=Path(config["cache"]))
    if call.resuming:
        refuse_other_corpus(corpus, run)
    model = assembly.new_model(config, corpus, options)
    if origin is not None:
        origin.give_to(model, corpus.tokenizers)
    return corpus, model


def _task_and_data(
    call: _Call, corpus: Corpus, model: Seq2Seq, numbers: precision.Precision
) -> tuple[TranslationTask, TranslationData, Compiler | None]:
    """What is learned and from which batches, as many tokens of them as fit."""
    config, run, options, *_ = call
    packed_from = packing.settle(
        options.packing, model, accelerator=options.accelerator, precision=numbers,
        guided=options.guides, compiled=options.compile,
    )  # fmt: skip
    task_of = partial(assembly.new_task, config, options, model, corpus, packed_from=packed_from)
    data = assembly.new_data(config, corpus, options)
    refuse_longer_than_readable(model, data)
    data.tokens_per_batch = token_budget.settled(
        config["data"]["tokens_per_batch"], run, options, data.planned.extent.longest,
        task_of(total_steps=1, compiler=None), precision=numbers, noted=call.settled,
    )  # fmt: skip
    steps = assembly.total_steps_of(options, data, call.last)
    compiler = Compiler("inductor") if options.compile else None
    return task_of(total_steps=steps, compiler=compiler), data, compiler


def _fit(made: _Made, run: Path, checkpoint: Path | None) -> None:
    """The steps and their validations, until the run or this call is at its end."""
    try:
        made.trainer.fit(made.task, made.data, ckpt_path=checkpoint)
    except torch.OutOfMemoryError as error:
        resume = shlex.join(["translate", "train", f"run={run}"])
        raise UserError(
            f"the GPU ran out of memory at step {made.trainer.global_step + 1}, with "
            f"data.tokens_per_batch = {made.data.tokens_per_batch}: start a new run with fewer, "
            "and trainer.accumulate to keep as many per step; or, if another program had filled "
            f"the memory, resume with {resume} (unless the model is recurrent, "
            "trainer.activation_checkpointing=true saves memory too)"
        ) from error
    if made.compiler is not None:
        log.info("%s", made.compiler.account())


def _finish(made: _Made, run: Path) -> float:
    """Judge the last step, draw the curves, note how the run ended; its best dev BLEU."""
    trainer, stop, dev = made.trainer, made.stop, made.dev
    number = stop.signalled()
    if number is not None and stop.interrupted:
        raise Interrupted(number, run, finished=False)
    if dev.last_step != trainer.global_step:
        trainer.validate(made.task, made.data, verbose=False)
    best = round(trainer.strategy.broadcast(dev.best), 2)  # one process knows it
    # what was out of time goes on by the same command, as often as it takes
    status = "unfinished" if stop.out_of_time else "finished"
    if is_first_process():
        provenance.write(run, status=status, steps=trainer.global_step, dev_bleu=best)
        try:
            on_demand(LEARNING_CURVES)(run / "metrics.csv", run / "plots" / "learning_curves.png")
        except UserError as error:  # nothing of the run depends on it
            log.warning("%s", error)
        log.info(
            "%s: best dev BLEU %.2f; the translator is %s", _ending(made), best, run / "bundle"
        )
    if number is not None:
        # not before the first has come here: once another has ended so, Lightning kills the first
        trainer.strategy.barrier()
        raise Interrupted(number, run, finished=not stop.out_of_time)
    return best


def _ending(made: _Made) -> str:
    """What ended a run, where that was not its last step."""
    steps = f"{made.trainer.global_step}/{made.stop.total_steps}"
    patience = made.trainer.early_stopping_callback
    if made.stop.out_of_time:
        return f"out of time at step {steps}"
    if made.trainer.global_step < made.stop.total_steps and patience is not None:
        return f"out of patience at step {steps} (trainer.patience={patience.patience})"
    return "finished"


def _remove_half_written(run: Path) -> None:
    """What a kill left of files that were being written."""
    remove_temporaries(run / "checkpoints")
    remove_temporaries(run)
    remove_half_written(run / "bundle")


def _record_beginning(call: _Call, **facts: Any) -> None:
    """What a run begins with, or goes on with, goes into its folder."""
    text = yaml.safe_dump(dict(call.config), sort_keys=False, allow_unicode=True)
    with replacing(call.run / "config.yaml") as file:
        file.write(text.encode())
    provenance.write(call.run, status="unfinished", **facts)


def _set_up(options: Settings, *, seed: int) -> None:
    """Set what holds for the whole process."""
    quieten_lightning()
    keep_memory()
    precision.multiply_in(options.precision)
    if on_gpu(options.accelerator):
        leave_out_cudnn()
    if options.threads:
        torch.set_num_threads(options.threads)
    L.seed_everything(seed, verbose=False)
