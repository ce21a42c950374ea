"""A run that begins from the weights of another (`init=`): fine-tuning.

Weights go over by their names. Embeddings and output have a row for each piece of a vocabulary:
pieces that both have keep their rows. A new piece starts at the mean of the old rows plus what the
new model drew for it: from the mean it takes no more probability than an average piece (Hewitt
2021, Initializing new word embeddings for pretrained language models), and what was drawn tells it
from the others.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
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
from translate.run_folder import configuration
from translate.training import records
from translate.training.settings import TrainingConfig

log = logging.getLogger(__name__)

NEW = -1  # in place of a row: the old vocabulary has no such piece
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
    wanted = init or (recorded if configuration(run) == config.dump() else None)
    if wanted is None:
        return None
    folder = bundles.find(wanted).absolute()
    bundle = bundles.load(folder)
    _refuse_other_shapes(folder, bundle, config.model)
    return Origin(folder, bundle)


def _refuse_other_origin(run: Path, init: str, recorded: str | None) -> None:
    places = {os.path.realpath(place) for place in (init, Path(init) / "bundle")}
    if recorded is None or os.path.realpath(recorded) not in places:
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


@torch.no_grad()
def transfer(
    old: Seq2Seq, new: Seq2Seq, *, source: Int[Tensor, "S"], target: Int[Tensor, "T"]
) -> None:
    """Copy every weight of a model that `fits`.

    Args:
        source, target: for each piece of the new vocabulary its row in the old, or NEW.
    """
    weights, tables = old.state_dict(), _tables(new)
    origins = {"source": source, "target": target}
    for name, weight in chain(new.named_parameters(), new.named_buffers()):  # tied ones once
        if name not in weights:  # a buffer that is not saved follows from the options
            continue
        before = weights[name].to(weight)
        if (side := tables.get(id(weight))) is None:
            weight.copy_(before)
        else:
            origin = origins[side]
            weight += before.mean(dim=0)
            weight[origin != NEW] = before[origin[origin != NEW]]


def fits(old: Seq2Seq, new: Seq2Seq) -> bool:
    """Tell whether names and shapes are the same, vocabularies apart, and nothing is tied anew.

    What was tied may come apart: each part takes a copy.
    """
    tied_before = _tied(old)
    return _shapes(old) == _shapes(new) and all(
        any(names <= before for before in tied_before) for names in _tied(new)
    )


def _tables(model: Seq2Seq) -> dict[int, str]:
    """The weights that have a row a piece, by identity, and whose pieces these are."""
    target = (model.target_embedding.weight, model.output.weight, model.output.bias)
    return {id(model.source_embedding.weight): "source"} | dict.fromkeys(map(id, target), "target")


def _shapes(model: Seq2Seq) -> dict[str, torch.Size]:
    tables = _tables(model)
    return {
        name: weight.shape[1:] if id(weight) in tables else weight.shape
        for name, weight in model.state_dict(keep_vars=True).items()
    }


def _tied(model: Seq2Seq) -> list[set[str]]:
    """The names of each parameter: several where it is shared."""
    names: dict[int, set[str]] = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].add(name)
    return list(names.values())
