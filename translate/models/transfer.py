"""The weights of one model for another, whose vocabulary may be another.

Weights go over by their names. Embeddings and output have a row for each piece of a vocabulary:
pieces that both have keep their rows. A new piece starts at the mean of the old rows plus what the
new model drew for it: from the mean it takes no more probability than an average piece (Hewitt
2021, Initializing new word embeddings for pretrained language models), and what was drawn tells it
from the others.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor

from translate.models.seq2seq import Seq2Seq

NEW = -1  # in place of a row: the old vocabulary has no such piece


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
        if name in weights:  # a buffer that is not saved follows from the options
            before, side = weights[name].to(weight), tables.get(id(weight))
            weight.copy_(before if side is None else _rows(before, weight, origins[side]))


def _rows(
    old: Float[Tensor, "O *rest"], drawn: Float[Tensor, "V *rest"], origin: Int[Tensor, "V"]
) -> Float[Tensor, "V *rest"]:
    rows = old.mean(dim=0) + drawn
    kept = origin != NEW
    rows[kept] = old[origin[kept]]
    return rows


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
