"""Choosing one attention of a decoder by its numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from translate.errors import UserError
from translate.models.head import AttentionHead, choose_head
from translate.models.seq2seq import Decoded, Memory, Seq2Seq


class Looking(Seq2Seq):
    """Three layers of two heads that look anywhere, or none at all."""

    def __init__(self, *, attends: bool = True, layers: int = 3) -> None:
        super().__init__(source_vocab_size=9, target_vocab_size=9)
        self.output = nn.Linear(2, 9)
        self.attends, self.layers = attends, layers

    def encode(self, source, source_mask):
        assert not self.training  # dropout would disturb the random numbers of training
        return Memory(torch.zeros(*source.shape, 2), source_mask)

    def decode(self, target_in, memory, *, need_alignment=False):
        rows, length = target_in.shape
        weights = torch.rand(rows, self.layers, 2, length, memory.mask.shape[1])
        return Decoded(torch.zeros(rows, length, 2), weights if self.attends else None)

    def start(self, memory):
        raise NotImplementedError

    def decode_step(self, tokens, state, *, need_alignment=False):
        raise NotImplementedError


@pytest.mark.parametrize(("layers", "chosen"), [(1, 1), (2, 2), (3, 2), (6, 5)])
def test_the_default_layer_is_the_last_of_few_and_the_last_but_one_of_many(
    layers: int, chosen: int
) -> None:
    assert choose_head(Looking(layers=layers), layer=None, head=1) == AttentionHead(chosen, 1)


def test_the_weights_are_those_of_the_head_or_the_mean() -> None:
    alignment = torch.rand(2, 3, 2, 4, 5)
    torch.testing.assert_close(AttentionHead(3, 2).of(alignment), alignment[:, 2, 1])
    mean = (alignment[:, 0, 0] + alignment[:, 0, 1]) / 2
    torch.testing.assert_close(AttentionHead(1, None).of(alignment), mean)


def test_a_number_out_of_range_and_no_attention_are_told() -> None:
    for layer in (-1, 0, 4):
        with pytest.raises(UserError, match=rf"^layer = {layer}: this model has layers 1 to 3$"):
            choose_head(Looking(), layer=layer, head=None)
    with pytest.raises(UserError, match=r"^trainer\.x\.head = 3: this model has heads 1 to 2$"):
        choose_head(Looking(), layer=1, head=3, where="trainer.x.")
    with pytest.raises(UserError, match=r"no attention over the source.*translate models"):
        choose_head(Looking(attends=False), layer=None, head=None)


@pytest.mark.parametrize("training", [True, False])
def test_asking_leaves_the_model_as_it_was(training: bool) -> None:
    model = Looking().train(training)
    choose_head(model, layer=None, head=None)
    assert model.training == training


def test_each_module_comes_back_in_its_own_mode() -> None:
    model = Looking().train()
    model.output.eval()  # frozen, say
    choose_head(model, layer=None, head=None)
    assert model.training
    assert not model.output.training
