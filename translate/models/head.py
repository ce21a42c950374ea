"""One attention of a decoder, chosen by the numbers of its layer and head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from translate.errors import UserError
from translate.models.seq2seq import Seq2Seq
from translate.vocabulary import BOS, EOS

NO_ATTENTION = (
    "this model has no attention over the source: its decoder reads the whole sentence as one "
    "vector; train a model that has attention (translate models says which one has none)"
)


@dataclass(frozen=True)
class AttentionHead:
    """A layer, and a head of it or the mean of all."""

    layer: PositiveInt
    head: PositiveInt | None  # None: the mean

    def of(self, alignment: Float[Tensor, "B L H T S"]) -> Float[Tensor, "B T S"]:
        """The weights of this head; whatever was chosen, rows sum to what they did."""
        weights = alignment[:, self.layer - 1]
        return weights.mean(dim=1) if self.head is None else weights[:, self.head - 1]


def choose_head(
    model: Seq2Seq, *, layer: int | None, head: int | None, where: str = ""
) -> AttentionHead:
    """A head by its numbers from 1, checked against what the model has.

    Args:
        layer: None is the last of one or two layers, the last but one of three and more
            (`default_layer`).
        head: None is the mean of all.
        where: the place of the two keys in the configuration, such as `trainer.`.

    Raises:
        UserError: no such layer or head, or no attention over the source at all.
    """
    shape = _shape(model)
    if shape is None:
        raise UserError(NO_ATTENTION)
    layers, heads = shape
    for name, number, count in (("layer", layer, layers), ("head", head, heads)):
        if number is not None and not 1 <= number <= count:
            raise UserError(f"{where}{name} = {number}: this model has {name}s 1 to {count}")
    return AttentionHead(default_layer(layers) if layer is None else layer, head)


def default_layer(layers: int) -> int:
    """The layer that aligns best as a rule: the last but one (Garg et al. 2019, of six).

    Of one or two it is the last (docs/benchmarks/quality.md): the first of two reads words that
    have met no others.
    """
    return layers - 1 if layers > 2 else layers


def attends(model: Seq2Seq) -> bool:
    """Tell whether its decoder has attention over the source."""
    return _shape(model) is not None


@torch.no_grad()
def _shape(model: Seq2Seq) -> tuple[int, int] | None:
    """Layers and heads of attention over the source: asked of the model with one token each."""
    device = next(model.parameters()).device
    source, target = (torch.tensor([[token]], device=device) for token in (EOS, BOS))
    mask = torch.ones_like(source, dtype=torch.bool)
    with in_mode(model, training=False):  # dropout would take the random numbers of others
        memory = model.encode(source, mask)
        alignment = model.decode(target, memory, need_alignment=True).alignment
    return None if alignment is None else (alignment.shape[1], alignment.shape[2])


Module = TypeVar("Module", bound=nn.Module)


@contextmanager
def in_mode(model: Module, *, training: bool) -> Iterator[Module]:
    """The model in this mode; afterwards each of its modules is in the mode it was in before."""
    before = {module: module.training for module in model.modules()}
    try:
        yield model.train(training)
    finally:
        for module, mode in before.items():
            module.training = mode
