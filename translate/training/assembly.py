"""What a run is made of, each part from its nodes of the configuration."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from translate.data.batching import Draws, TokenBatches
from translate.data.corpus import Corpus
from translate.data.module import TranslationData
from translate.errors import UserError
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.search import build as build_search
from translate.training.accelerator import on_gpu
from translate.training.averaging import AveragedWeights
from translate.training.checkpoint import AtomicCheckpointIO
from translate.training.compilation import Compiler
from translate.training.dev_translations import DevTranslations
from translate.training.guidance import build_guidance
from translate.training.last_checkpoint import LastCheckpoint
from translate.training.minimum_risk import MinimumRisk
from translate.training.module import TranslationTask
from translate.training.settings import Settings
from translate.training.trainer import processes

log = logging.getLogger(__name__)

SOON = 10  # seconds in which nobody asks what a program is doing


def new_data(config: Mapping[str, Any], corpus: Corpus, options: Settings) -> TranslationData:
    """The batches of a corpus; their `tokens_per_batch` is still to be settled."""
    data = config["data"]
    sampling, guided = samples(config["tokenizer"]), options.guides
    workers = data["workers"]
    if workers is None:
        # cutting text takes time; padding takes a CPU less of it than fetching from a worker
        workers = int(sampling or guided or on_gpu(options.accelerator))
    return TranslationData(
        corpus,
        max_length=data["max_length"],
        tokens_per_batch=0,
        pool_batches=data["pool_batches"],
        workers=workers,
        sampling=sampling,
        guided=guided,
        seed=config["seed"],
    )


def samples(tokenizer: Mapping[str, Any]) -> bool:
    """Whether training text is segmented anew each epoch."""
    return any(tokenizer.get("sampling", {}).values())


def total_steps_of(options: Settings, data: TranslationData, last: Path) -> int:
    """Optimizer steps of the whole run, of each process: those taken and those that are left.

    Raises:
        UserError: its epochs have not the batches of a single step.
    """
    if options.max_epochs is None:
        assert options.max_steps is not None  # Settings sees to it
        return options.max_steps
    taken, done, begun = 0, 0, (0, 0)
    if last.exists():  # by perhaps another number of processes
        state = AtomicCheckpointIO().load_checkpoint(last)
        taken, of_data = state["global_step"], state[type(data).__qualname__]
        done, begun = of_data["batches_done"], of_data.get("epoch_begun", begun)
    epoch, count = begun if begun[0] < options.max_epochs else (0, 0)
    of_step = processes(options) * options.accumulate
    enough = None
    if options.max_steps is not None:  # which may end the run before its epochs do
        enough = max(done + (options.max_steps - taken) * of_step - count, 0)
    left = _batches_of(data.batches(), range(epoch, options.max_epochs))
    count += sum(1 for _ in itertools.islice(left, enough))
    steps = taken + (count - done) // of_step
    if steps < 1:
        raise UserError(
            f"a step of {of_step:,} batches (trainer.accumulate = {options.accumulate}, in each "
            f"process) is more than trainer.max_epochs = {options.max_epochs} has, {count:,}: "
            "lower trainer.accumulate, or train longer"
        )
    return min(steps, options.max_steps) if options.max_steps else steps


def _batches_of(batches: TokenBatches, epochs: range) -> Iterator[Draws]:
    """All batches of these epochs; says so if they take long to draw."""
    began = time.monotonic()
    for epoch in epochs:
        yield from batches.epoch(epoch)
        seconds = (time.monotonic() - began) * (len(epochs) - 1)
        if epoch == epochs.start and seconds > SOON:
            log.info(
                "counting the batches of %d epochs takes about %d s; with trainer.max_steps in "
                "place of trainer.max_epochs none are counted", len(epochs), seconds,
            )  # fmt: skip


def new_model(config: Mapping[str, Any], corpus: Corpus, options: Settings) -> Seq2Seq:
    """A model for the corpus's vocabularies, with random weights."""
    model = registry.build(
        config["model"],
        source_vocab_size=len(corpus.tokenizers.source),
        target_vocab_size=len(corpus.tokenizers.target),
    )
    model.recompute = options.activation_checkpointing
    if options.precision == "64-true":
        model.double()  # before its bytes are counted
    return model


def new_task(
    config: Mapping[str, Any],
    options: Settings,
    model: Seq2Seq,
    corpus: Corpus,
    *,
    compiler: Compiler | None,
    packed_from: int,
    total_steps: int,
) -> TranslationTask:
    """What a training step of the model is, in a run of `total_steps`."""
    minimum_risk = None
    if options.minimum_risk.weight:
        minimum_risk = MinimumRisk(
            **options.minimum_risk.model_dump(), seed=config["seed"],
            limits=_length_limits(config), tokenizer=corpus.tokenizers.target,
            references=corpus.train,
        )  # fmt: skip
    return _task_class(options)(
        model,
        label_smoothing=options.label_smoothing,
        r_drop=options.r_drop,
        word_dropout=options.word_dropout,
        compiler=compiler,
        packed_from=packed_from,
        guidance=build_guidance(model, options.guided_alignment),
        optimizer=config["optimizer"],
        schedule=config["schedule"],
        total_steps=total_steps,
        seed=config["seed"],
        tags=len(corpus.tokenizers.source.tags),
        minimum_risk=minimum_risk,
    )


def _task_class(options: Settings) -> type[TranslationTask]:
    if options.strategy != "fsdp":
        return TranslationTask
    from translate.training.sharding import ShardedTask

    return ShardedTask


def new_dev_translations(
    config: Mapping[str, Any],
    corpus: Corpus,
    run: Path,
    tokens: int,
    *,
    tokenize: str | None,
    recorded: float | None,
) -> DevTranslations:
    """The callback that translates dev sentences, greedily, in batches of so many tokens."""
    return DevTranslations(
        corpus=corpus,
        # a beam would cost more than it tells
        search=build_search({"kind": "greedy", **_length_limits(config)}),
        config=config,
        run=run,
        sentences=config["trainer"]["validation_sentences"],
        samples=config["trainer"]["samples"],
        tokens_per_batch=tokens,
        tokenize=tokenize,
        recorded=recorded,
    )


def _length_limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """How long translations may become while training: as long as the run's search allows."""
    return {key: config["search"][key] for key in ("max_length_ratio", "max_length_offset")}


def new_last_checkpoint(options: Settings, last: Path, steps: int) -> LastCheckpoint:
    """What saves last.ckpt, and ends a run of so many steps."""
    return LastCheckpoint(
        last,
        save_every=options.save_every,
        validate_every=options.validate_every,
        total_steps=steps,
        max_minutes=options.max_minutes,
    )


def new_averaging(options: Settings, steps: int) -> list[Callback]:
    """The callback that averages weights, if any, for a run of so many steps."""
    if not options.averages:
        return []
    return [AveragedWeights(**options.averaging.model_dump(), total_steps=steps)]
