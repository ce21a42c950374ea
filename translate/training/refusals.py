"""What a run refuses before its first step: another configuration, other text, sentences too long.

The disk is asked in `disk.py`, another process in `lock.py`, another beginning in `fine_tuning.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from translate import machine
from translate.data.batching import lengths
from translate.data.corpus import Corpus
from translate.data.module import TranslationData
from translate.errors import UserError
from translate.inference import bundle as bundles
from translate.inference.bundle import parse_json, read_bounded
from translate.models import registry
from translate.models.head import attends
from translate.models.registry import shapes_only
from translate.models.seq2seq import Seq2Seq
from translate.search.scoring import nothing_to_cover
from translate.training import packing, provenance
from translate.training.accelerator import check_accelerator, on_gpu
from translate.training.assembly import samples
from translate.training.checkpoint_average import KEPT
from translate.training.disk import bytes_of, memory_of_training, readable
from translate.training.guidance import build_guidance
from translate.training.precision import check_precision
from translate.training.settings import MAY_CHANGE, Settings, flat
from translate.wording import counted, install

FEW = 8  # pieces, special ones included: embeddings take no memory


def refuse_what_cannot_be_trained(config: Mapping[str, Any], options: Settings) -> None:
    """What this machine or the model of a configuration cannot do, told before any work."""
    check_accelerator(options.accelerator)
    check_precision(options.precision, options.accelerator)
    if options.strategy == "fsdp":
        refuse_what_cannot_be_sharded(options, config["model"]["family"])
    refuse_missing_loggers(options)
    refuse_flex_attention(config["model"], options)
    refuse_more_than_memory(config["model"], options)
    refuse_what_the_model_cannot(config, options)


def refuse_other_configuration(config: Mapping[str, Any], run: Path) -> None:
    """A checkpoint goes on only under the configuration that made it, but for `MAY_CHANGE`."""
    written = provenance.configuration(run)
    if written is None:
        raise UserError(
            f"{run / 'config.yaml'}, which records what {run} was started with, cannot be read: "
            "restore it, or start a new run folder"
        )
    since = registry.upgraded({"family": config["model"]["family"]})
    before, now = flat({"model": since}) | flat(written), flat(config)
    differences = [
        f"{key}: {before.get(key)!r} → {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in MAY_CHANGE
    ]
    if differences:
        raise UserError(
            f"{run} was started with another configuration ({'; '.join(differences)}): leave "
            "these keys as they were (if files have moved, put them or links to them back), or "
            "start a new run folder"
        )


def refuse_fewer_steps(run: Path, options: Settings, taken: int, *, total: int) -> None:
    """A run cannot end before the step it has come to, once that is read from its checkpoint."""
    if taken <= total:
        return
    ends = {"max_steps": options.max_steps, "max_epochs": options.max_epochs}
    given = " and ".join(f"trainer.{key}={end}" for key, end in ends.items() if end is not None)
    raise UserError(
        f"{run} has already taken {counted(taken, 'step')}, but {given} would end it after "
        f"{total:,}: give more, or leave it as it was"
    )


def refuse_to_begin_over(run: Path) -> None:
    """Without the checkpoint that it goes on from, a run would begin anew and replace its model.

    One that a kill ended in the validation of its first step, before any checkpoint, may do so.
    """
    steps = provenance.noted(run, "steps")  # of a training that came to its end
    held = [
        *filter(None, [bundles.located(run)]),
        *sorted((run / "checkpoints").glob("*.ckpt")),
        *([] if steps is None else [f"{counted(steps, 'step')} in {provenance.FILE}"]),
    ]
    if held and not (steps is None and _holds_one_step(run)):
        raise UserError(
            f"{run} contains a trained model ({', '.join(map(str, held))}) but no "
            "checkpoints/last.ckpt to resume from: restore it, or copy best.ckpt in its place; or "
            f"start from this model with init={run} and another run=; or remove the folder"
        )


def _holds_one_step(run: Path) -> bool:
    """Whether a run has a model of its first step, and none of a later one."""
    folder = bundles.located(run)
    if folder is None or provenance.run_status(run) != "unfinished":
        return False
    path = folder / bundles.CONFIG
    try:
        extra = parse_json(read_bounded(path, largest=bundles.LARGEST[bundles.CONFIG]), path).get(
            "extra"
        )
    except UserError:  # damaged: nobody knows of what step
        return False
    if not isinstance(extra, dict) or extra.get("step") != 1:
        return False
    names = {f"{name}.ckpt" for name in ("best", KEPT.format(step=1))}  # best is no later
    return {path.name for path in (run / "checkpoints").glob("*.ckpt")} <= names


def refuse_missing_loggers(options: Settings) -> None:
    """Those that were asked for and are not installed."""
    for name in ("tensorboard", "wandb", "mlflow"):
        if getattr(options, name) and find_spec(name) is None:
            raise UserError(f"trainer.{name}=true needs the package {name}: {install(name)}")


def refuse_unwritable(run: Path) -> None:
    """A folder in it that takes no files would be told at the first save."""
    for folder in (run / "checkpoints", run / "plots"):
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise UserError(
                f"{folder} is not a writable folder: fix its permissions, remove it if it is a "
                "file, or choose another folder with run="
            )


def refuse_what_cannot_be_sharded(options: Settings, family: str) -> None:
    """UserError that names all that trainer.strategy=fsdp cannot have, and what it can."""
    risk = options.minimum_risk.weight
    remedies = {
        f"model.family={family}": (family != "transformer", "model=transformer"),
        f"trainer.precision={options.precision}": (
            options.precision not in ("auto", "bf16-mixed", "32-true"), "trainer.precision=auto",
        ),
        "trainer.compile=true": (options.compile, "trainer.compile=false"),
        f"trainer.minimum_risk.weight={risk:g}": (risk > 0, "trainer.minimum_risk.weight=0"),
    }  # fmt: skip
    wrong = {key: remedy for key, (is_wrong, remedy) in remedies.items() if is_wrong}
    if wrong:
        raise UserError(
            f"trainer.strategy = fsdp cannot be combined with {', '.join(wrong)}: choose "
            f"{', '.join(wrong.values())}; or trainer.strategy=ddp"
        )


def refuse_more_than_memory(model: Mapping[str, Any], options: Settings) -> None:
    """A model that this machine cannot build or, without a GPU, cannot train.

    What its vocabularies add is not counted: they are not known before a corpus is prepared.
    """
    with shapes_only():
        outline = registry.build(model, source_vocab_size=FEW, target_vocab_size=FEW)
    trained_here = not on_gpu(options.accelerator) and options.strategy != "fsdp"
    needed, purpose = bytes_of(outline), "to hold"
    if trained_here:
        needed, purpose = memory_of_training(outline, averaged=options.averages), "to train"
    granted = machine.memory()
    if needed > granted:
        raise UserError(
            f"with its {sum(p.numel() for p in outline.parameters()):,} parameters and its "
            f"vocabulary, this model takes {readable(needed)} {purpose}, but this process may have "
            f"{readable(granted)} of memory: choose fewer or smaller layers (model=…), a larger "
            "machine, or a higher limit where this container or job has one"
        )


def refuse_what_the_model_cannot(config: Mapping[str, Any], options: Settings) -> None:
    """UserError for options that its model does not carry, before a corpus is prepared for it.

    A model of the configuration is asked, with a vocabulary of `FEW` pieces.
    """
    guided = options.guides
    coverage = config["search"].get("coverage_penalty", 0.0)
    if guided and samples(config["tokenizer"]):
        raise UserError(
            "trainer.guided_alignment.weight and tokenizer.sampling cannot be combined: "
            "alignments link words, but sampling splits words into new pieces each epoch; set one "
            "of the two to 0"
        )
    if not (guided or coverage or options.packing == "on"):
        return
    with torch.random.fork_rng(devices=[]):  # the run's own weights come first of its seed
        model = registry.build(config["model"], source_vocab_size=FEW, target_vocab_size=FEW)
    build_guidance(model, options.guided_alignment)
    if coverage and not attends(model):
        raise UserError(nothing_to_cover(coverage))
    if options.packing == "on":  # what it asks of a GPU is known when its precision is
        packing.settle(
            "on", model, accelerator="cpu", precision="32-true",
            guided=guided, compiled=options.compile,
        )  # fmt: skip


def refuse_flex_attention(model: Mapping[str, Any], options: Settings) -> None:
    """Where a run asks for it and it cannot be had."""
    if not model.get("flex_attention"):
        return
    why = None
    if options.compile:
        why = "trainer.compile compiles programs of its own: set one of the two to false"
    elif not on_gpu(options.accelerator):
        why = (
            "it can only train on NVIDIA GPUs, and with "
            f"trainer.accelerator={options.accelerator} this run has none: set it to false, or "
            "resume a run started with it on a machine that has one"
        )
    if why is not None:
        raise UserError(f"model.flex_attention = true, but {why}")


def refuse_other_corpus(corpus: Corpus, run: Path) -> None:
    """The same settings may name files whose text has changed since."""
    before, now = provenance.read(run).get("corpus"), corpus.identity
    if before is None or before == now:
        return
    changed = ", ".join(key for key in now if before.get(key) != now[key])
    raise UserError(
        f"{run} was started with different text (changed: {changed}): restore the data files, or "
        "start a new run folder. If they are what they were, another version of this program "
        "prepared them otherwise: resume the run with that version, or start from it with init="
    )


def refuse_random_weights(options: Settings) -> None:
    """A run that begins from nothing samples noise, of which none is better than the rest."""
    if weight := options.minimum_risk.weight:
        raise UserError(
            f"trainer.minimum_risk.weight = {weight} learns from what the model samples, and "
            "random weights sample noise: train with 0 first, then start from that run with "
            "init=PATH"
        )


def refuse_longer_than_readable(model: Seq2Seq, data: TranslationData) -> None:
    """A sentence that the model cannot read would stop the run at some step."""
    if model.max_length is None:
        return
    dev = max(int(side.max()) for side in lengths(data.corpus.dev))
    for split, longest in (("train", data.planned.extent.longest), ("dev", dev)):
        if longest > model.max_length:
            raise UserError(
                f"the longest sentence of {split} has {longest} pieces, including </s>, but this "
                f"model has {model.max_length} positions: set model.max_positions={longest} or "
                "more"
            )
