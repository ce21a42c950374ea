"""A model without weights: a random table of next-token scores, looked up by the whole prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from translate.models.seq2seq import Decoded, Memory, Seq2Seq, Step
from translate.vocabulary import EOS

ROWS = 4093  # prefixes fall on these rows, a prime so that they spread


@dataclass(frozen=True)
class PrefixState:
    memory: Memory
    prefixes: Tensor  # (N,) row of the table

    def select(self, hypotheses: Tensor) -> PrefixState:
        return PrefixState(self.memory, self.prefixes[hypotheses])

    def keep(self, sentences: Tensor) -> PrefixState:
        memory = Memory(self.memory.states[sentences], self.memory.mask[sentences])
        per_sentence = self.prefixes.view(len(self.memory.mask), -1)
        return PrefixState(memory, per_sentence[sentences].flatten())


class TableModel(Seq2Seq):
    """Its hidden vectors are the logits; its alignment depends on prefix and source position."""

    def __init__(self, vocab_size: int, seed: int, sharpness: float, end: float) -> None:
        super().__init__(source_vocab_size=vocab_size, target_vocab_size=vocab_size)
        self.output = nn.Linear(vocab_size, vocab_size, bias=False, dtype=torch.float64)
        nn.init.eye_(self.output.weight)
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(ROWS, vocab_size, generator=generator, dtype=torch.float64)
        self.table = table * sharpness
        self.table[:, EOS] += end

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        places = torch.arange(1, source.shape[1] + 1)
        states = (source * places).masked_fill(~source_mask, 0)[..., None].double()
        return Memory(states, source_mask)

    def decode(self, target_in: Tensor, memory: Memory, *, need_alignment: bool = False) -> Decoded:
        state, hidden, alignment = self.start(memory), [], []
        for tokens in target_in.unbind(1):
            step = self.decode_step(tokens, state, need_alignment=need_alignment)
            state = step.state
            hidden.append(step.hidden)
            alignment.append(step.alignment)
        aligned = torch.stack(alignment, dim=3) if need_alignment else None
        return Decoded(torch.stack(hidden, dim=1), aligned)

    def start(self, memory: Memory) -> PrefixState:
        return PrefixState(memory, memory.states.sum((1, 2)).long() * 31 % ROWS)

    def decode_step(
        self,
        tokens: Tensor,
        state: PrefixState,
        *,
        live: Tensor | None = None,
        need_alignment: bool = False,
    ) -> Step:
        assert len(tokens), "a step without any hypothesis"
        read = slice(None) if live is None else live
        prefixes = torch.full_like(state.prefixes, ROWS - 1)  # of those that are not read
        prefixes[read] = (state.prefixes[read] * 37 + tokens * 101 + 1) % ROWS
        alignment = None
        if need_alignment:
            mask = state.memory.mask.repeat_interleave(len(prefixes) // len(state.memory.mask), 0)
            # three layers of two heads, (N, 3, 2, S), each with its own waves
            waves = torch.arange(1.0, 7.0)[:, None] + torch.arange(mask.shape[1])
            scores = 3 * torch.sin(prefixes[:, None, None] * waves.double()).unflatten(1, (3, 2))
            alignment = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(3)
        return Step(self.table[prefixes[read]], PrefixState(state.memory, prefixes), alignment)


@pytest.fixture(scope="session")
def table_model() -> Callable[..., Seq2Seq]:
    """`table_model(vocab_size, seed)`: `sharpness` spreads the scores, `end` favours </s>."""

    def build(
        vocab_size: int, seed: int, *, sharpness: float = 1.0, end: float = 0.0
    ) -> TableModel:
        return TableModel(vocab_size, seed, sharpness, end)

    return build
