"""A run that begins from the weights of another (`init=`): fine-tuning."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from translate.data.tokenizer import SPECIAL, Tokenizer, Tokenizers
from translate.errors import UserError
from translate.inference import bundle as bundles
from translate.inference.bundle import Bundle
from translate.models import registry
from translate.models.registry import shapes_only
from translate.models.seq2seq import ModelConfig, Seq2Seq
from translate.models.transfer import NEW, fits, transfer
from translate.training import records
from translate.training.settings import TrainingConfig

log = logging.getLogger(__name__)

MOST_LOST = 0.1  # of the pieces of a vocabulary, without a warning


@dataclass(frozen=True)
class Origin:
    """A bundle to begin from."""

    folder: Path
    bundle: Bundle

    @property
    def facts(self) -> dict[str, str]:
        """The facts that the run remembers of it."""
        return {"bundle": str(self.folder), "weights": self.bundle.weights_sha256}

    def give_to(self, model: Seq2Seq, tokenizers: Tokenizers) -> None:
        """Replace the weights of `model`; the log accounts for the rows of its vocabularies."""
        old = self.bundle.tokenizers
        source = origins(old.source, tokenizers.source)
        target = origins(old.target, tokenizers.target)
        transfer(self.bundle.model, model, source=source, target=target)
        accounts = []
        for side, rows, before in (("source", source, old.source), ("target", target, old.target)):
            kept, lost = int((rows != NEW).sum()), len(before) - int((rows != NEW).sum())
            accounts.append(
                f"{side}: {kept:,} pieces keep their rows, {len(rows) - kept:,} are new, {lost:,} "
                "are lost"
            )
            counted_already = side == "target" and old.joint and tokenizers.joint
            if lost > MOST_LOST * len(before) and not counted_already:
                log.warning(
                    "%d of the %d %s pieces of %s are not in the vocabulary of the new text, and "
                    "what was learned about them is lost: with init= and without tokenizer keys "
                    "the vocabulary stays",
                    lost, len(before), side, self.folder,
                )  # fmt: skip
        log.info("starting from %s (%s)", self.folder, "; ".join(accounts))


def find_origin(
    run: Path, init: str | None, config: TrainingConfig, *, resuming: bool
) -> Origin | None:
    """Find what a run is to begin from; None where it begins from nothing, or goes on.

    A run that was stopped before its first checkpoint remembers what it was to begin from, as long
    as its configuration is the same.

    Args:
        init: the run or bundle that the command line names.

    Raises:
        UserError: there is no bundle, its weights have other shapes, or a run that goes on was
            begun from another.
    """
    recorded = (records.noted(run, "init") or {}).get("bundle")
    if resuming:
        if init is not None:
            _refuse_other_origin(run, init, recorded)
        return None
    wanted = init or (recorded if records.configuration(run) == config.dump() else None)
    if wanted is None:
        return None
    folder = bundles.find(wanted).absolute()
    bundle = bundles.load(folder)
    _refuse_other_shapes(folder, bundle, config.model)
    return Origin(folder, bundle)


def _refuse_other_origin(run: Path, init: str, recorded: str | None) -> None:
    given = {os.path.realpath(place) for place in (init, Path(init) / "bundle")}
    if recorded is None or os.path.realpath(recorded) not in given:
        raise UserError(
            f"{run} resumes from its own checkpoint and was started from {recorded or 'nothing'}, "
            f"not from {init}: leave out init=, or start a new run folder"
        )


def _refuse_other_shapes(folder: Path, bundle: Bundle, model: ModelConfig) -> None:
    before, now = bundle.config.model, model.model_dump(mode="json")
    changed = [
        f"model.{key}: {before.get(key)!r} → {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
    if not changed:
        return
    size = bundle.model.target_vocab_size  # of both sides: the vocabularies may differ, rows apart
    with shapes_only():
        outline = registry.build(model, source_vocab_size=size, target_vocab_size=size)
    if not fits(bundle.model, outline):
        raise UserError(
            f"the weights of {folder} do not fit this model ({'; '.join(changed)}): leave the keys "
            "that change shapes as they were (without model= they are the bundle's), or train "
            "without init="
        )
    log.info("options that differ from those of %s: %s", folder, "; ".join(changed))


def origins(old: Tokenizer, new: Tokenizer) -> Int[Tensor, "V"]:
    """Return, for each piece of the new vocabulary, its row in the old one, or NEW."""
    row = {piece: index for index, piece in enumerate(old.pieces(range(len(old))))}
    rows = [row.get(piece, NEW) for piece in new.pieces(range(len(new)))]
    for special in SPECIAL.values():  # the same ids in every vocabulary
        rows[special] = special
    return torch.tensor(rows)
