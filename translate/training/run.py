"""One training run, from a validated configuration to a finished folder."""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from lightning.pytorch.callbacks import Callback

from translate.data.corpus import Corpus, prepare
from translate.data.module import TranslationData, lengths
from translate.durable import remove_temporaries, replacing
from translate.errors import UserError
from translate.models import registry
from translate.models.seq2seq import Seq2Seq
from translate.plots.curves import learning_curves
from translate.search import build as build_search
from translate.training import provenance
from translate.training.allocator import keep_memory
from translate.training.averaging import AveragedWeights
from translate.training.dev_translations import DevTranslations
from translate.training.disk import check_room
from translate.training.finite import StopWhenNotFinite
from translate.training.guidance import build_guidance
from translate.training.last_checkpoint import LastCheckpoint
from translate.training.lock import locked
from translate.training.module import TranslationTask
from translate.training.settings import MAY_CHANGE, Settings
from translate.training.trainer import build_trainer, processes, quieten_lightning

log = logging.getLogger(__name__)


class Interrupted(Exception):
    """A signal ended the run after a step; everything is saved.

    Attributes:
        exit_code: 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, number: int, run: Path) -> None:
        name = signal.Signals(number).name
        resume = shlex.join(["translate", "train", f"run={run}"])
        super().__init__(f"stopped by {name}, all is saved; this goes on: {resume}")
        self.exit_code = 128 + number


def train(config: Mapping[str, Any], run: Path) -> None:
    """Train, or go on with, the run in folder `run`.

    Args:
        config: resolved and validated: the nodes data, tokenizer, model, optimizer, schedule,
            trainer, search and the scalars seed and cache.
        run: the folder; an interrupted run in it goes on.

    Raises:
        UserError: anything a person can mend, before or while training; another process that
            trains in this folder.
        Interrupted: by Ctrl-C or SIGTERM, after saving.
    """
    with locked(run) if _is_main_process() else nullcontext():
        _train(config, run)


def _train(config: Mapping[str, Any], run: Path) -> None:
    options = Settings(**config["trainer"])
    if _is_main_process():
        _log_to(run / "train.log")
    last = run / "checkpoints" / "last.ckpt"
    resuming = last.exists()
    if resuming:
        _refuse_other_configuration(config, run)
    if _is_main_process():
        _save_configuration(config, run)
        provenance.write(run, status="unfinished")
        remove_temporaries(last.parent)
        remove_temporaries(run)

    quieten_lightning()
    keep_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    L.seed_everything(config["seed"], verbose=False)
    corpus = prepare(config["data"], config["tokenizer"], cache=Path(config["cache"]))
    if resuming:
        _refuse_other_corpus(corpus, run)
    data = _data(config, corpus, guided=options.guided_alignment.weight > 0)
    steps = _total_steps(options, data)
    model = _model(config, corpus)
    _refuse_longer_than_readable(model, data)
    if _is_main_process():
        check_room(run, model, averaged=options.averaging.kind != "none")
        provenance.write(run, corpus=_identity(corpus))
    task = TranslationTask(
        model,
        label_smoothing=options.label_smoothing,
        guidance=build_guidance(model, options.guided_alignment),
        optimizer=config["optimizer"],
        schedule=config["schedule"],
        total_steps=steps,
        seed=config["seed"],
    )
    stop = LastCheckpoint(
        last,
        save_every=options.save_every,
        validate_every=min(options.validate_every, steps),
        total_steps=steps,
        max_minutes=options.max_minutes,
    )
    dev = _dev_translations(config, corpus, run)
    finite = StopWhenNotFinite(run, every=options.log_every)
    trainer = build_trainer(options, run, steps, [finite, dev, *_averaging(options, steps)], stop)
    if trainer.precision == "64-true":
        task.double()  # Lightning does so after weight averaging has copied the model
    log.info(
        "%s %s: %s parameters, %s training pairs, %d steps of at most %d tokens a side, %s, %s",
        "going on with" if resuming else "training",
        run,
        f"{sum(p.numel() for p in model.parameters()):,}",
        f"{len(corpus.train):,}",
        steps,
        data.tokens_per_batch * options.accumulate * trainer.world_size,
        trainer.precision,
        "1 process" if trainer.world_size == 1 else f"{trainer.world_size} processes",
    )
    for logger in trainer.loggers:
        logger.log_hyperparams(_flat(config))
    trainer.fit(task, data, ckpt_path=last if resuming else None)
    if stop.signal is not None and trainer.global_step < steps:
        raise Interrupted(stop.signal, run)
    if dev.last_step != trainer.global_step:
        trainer.validate(task, data, verbose=False)
    if _is_main_process():
        learning_curves(run / "metrics.csv", run / "plots" / "learning_curves.png")
        provenance.write(
            run, status="finished", steps=trainer.global_step, dev_bleu=round(dev.best, 2)
        )
        log.info("finished: best dev BLEU %.2f; the translator is %s", dev.best, run / "bundle")


def _is_main_process() -> bool:
    """Of all on all machines: whoever starts the others numbers them in some of these variables.

    torchrun sets RANK, SLURM its own, Lightning the number on a machine and that of the machine.
    """
    numbers = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    return all(os.environ.get(name, "0") == "0" for name in numbers)


def _log_to(path: Path) -> None:
    """Everything that is logged also goes to the run's train.log."""
    root = logging.getLogger()
    logging.getLogger("translate").setLevel(logging.INFO)
    for handler in root.handlers:
        if getattr(handler, "name", None) == "train.log":
            root.removeHandler(handler)
            handler.close()
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.name = "train.log"
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    root.addHandler(handler)


def _save_configuration(config: Mapping[str, Any], run: Path) -> None:
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    with replacing(run / "config.yaml") as file:
        file.write(text.encode())


def _refuse_other_configuration(config: Mapping[str, Any], run: Path) -> None:
    """A checkpoint goes on only under the configuration that made it, but for `MAY_CHANGE`."""
    path = run / "config.yaml"
    try:
        before = _flat(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read, which says what {run} was begun with: put it back, or start "
            "a new run folder"
        ) from error
    now = _flat(config)
    differences = [
        f"{key}: {before.get(key)!r} → {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
        and key not in ("cache", "data.workers")
        and not (key.startswith("trainer.") and key.split(".")[1] in MAY_CHANGE)
    ]
    if differences:
        raise UserError(
            f"{run} was begun with another configuration ({'; '.join(differences)}): leave these "
            "keys as they were, or start a new run folder"
        )


def _refuse_other_corpus(corpus: Corpus, run: Path) -> None:
    """The same settings may name files whose text has changed since."""
    before, now = provenance.read(run).get("corpus"), _identity(corpus)
    if before is None or before == now:
        return
    changed = ", ".join(key for key in now if before.get(key) != now[key])
    raise UserError(
        f"{run} was begun with other text (different: {changed}): put the files of data back as "
        "they were, or start a new run folder"
    )


def _identity(corpus: Corpus) -> dict[str, str]:
    """What tells a corpus and its tokenizers from all others."""
    return {
        "corpus": corpus.folder.name,  # a hash of text and settings
        "source tokenizer": corpus.tokenizers.source.sha256,
        "target tokenizer": corpus.tokenizers.target.sha256,
    }


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _data(config: Mapping[str, Any], corpus: Corpus, *, guided: bool) -> TranslationData:
    data = config["data"]
    return TranslationData(
        corpus,
        max_length=data["max_length"],
        tokens_per_batch=data["tokens_per_batch"],
        pool_batches=data["pool_batches"],
        workers=data["workers"],
        sampling=_samples(config["tokenizer"]),
        guided=guided,
        seed=config["seed"],
    )


def _samples(tokenizer: Mapping[str, Any]) -> bool:
    """Whether training text is segmented anew each epoch."""
    return any(bool(value) for value in tokenizer.get("sampling", {}).values())


def _total_steps(options: Settings, data: TranslationData) -> int:
    """Optimizer steps of the whole run, of each process."""
    if options.max_epochs is None:
        assert options.max_steps is not None  # Settings sees to it
        return options.max_steps
    batches = data.batches()
    count = sum(len(batches.epoch(epoch)) for epoch in range(options.max_epochs))
    steps = max(1, count // (processes(options) * options.accumulate))
    return min(steps, options.max_steps) if options.max_steps else steps


def _model(config: Mapping[str, Any], corpus: Corpus) -> Seq2Seq:
    return registry.build(
        **config["model"],
        source_vocab_size=len(corpus.tokenizers.source),
        target_vocab_size=len(corpus.tokenizers.target),
    )


def _refuse_longer_than_readable(model: Seq2Seq, data: TranslationData) -> None:
    """A sentence that the model cannot read would stop the run at some step."""
    if model.max_length is None:
        return
    dev = max(int(side.max()) for side in lengths(data.corpus.dev))
    for split, longest in (("train", data.longest), ("dev", dev)):
        if longest > model.max_length:
            raise UserError(
                f"the longest sentence of {split} has {longest} pieces, </s> included, and this "
                f"model {model.max_length} positions: model.max_positions={longest} or more"
            )


def _dev_translations(config: Mapping[str, Any], corpus: Corpus, run: Path) -> DevTranslations:
    search = config["search"]
    limits = {key: search[key] for key in ("max_length_ratio", "max_length_offset")}
    return DevTranslations(
        corpus=corpus,
        search=build_search("greedy", **limits),  # a beam would cost more than it tells
        config=config,
        run=run,
        sentences=config["trainer"]["validation_sentences"],
        samples=config["trainer"]["samples"],
        tokens_per_batch=config["data"]["tokens_per_batch"],
    )


def _averaging(options: Settings, steps: int) -> list[Callback]:
    if options.averaging.kind == "none":
        return []
    return [AveragedWeights(**options.averaging.model_dump(), total_steps=steps)]
