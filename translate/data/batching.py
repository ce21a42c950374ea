"""Batches of at most so many padded tokens, from pools sorted by length.

The order of training is a pure function of (seed, batch index): to resume is to skip. What is kept
of a pair is its two lengths and its weight, 12 bytes, and during an epoch its place and its
occurrences so far, 6 more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from translate.data.mixing import Weights, pairs_of
from translate.data.pair_table import Places
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

TOKENS_ON_CPU = 4_096  # what `data.tokens_per_batch=auto` is where no GPU's memory sets it
Lengths = Int[np.ndarray, "pairs"]  # tokens of each pair's source or target


class Batch(NamedTuple):
    """Pairs of sentences, padded to the longest of the batch."""

    ids: Int[Tensor, "B"]  # which pairs of the corpus these are
    source: Int[Tensor, "B S"]  # x </s>
    source_lengths: Int[Tensor, "B"]
    target_in: Int[Tensor, "B T"]  # <s> y
    target_out: Int[Tensor, "B T"]  # y </s>
    target_lengths: Int[Tensor, "B"]
    source_tokens: int  # sums of the lengths, which a GPU need not be asked for
    target_tokens: int
    gold: Float[Tensor, "B T S"] | None = None  # where attention should look (`guidance.gold_rows`)

    def repeated(self, times: int) -> Batch:
        """All sentences, and then all of them again."""
        again: dict[str, Any] = {
            name: torch.cat([part] * times) if isinstance(part, Tensor) else part * times
            for name, part in self._asdict().items()
            if part is not None
        }
        return self._replace(**again)


class Draw(NamedTuple):
    """One pair of one epoch: what subword sampling is seeded with."""

    epoch: int
    pair: int
    occurrence: int  # of the pair in the epoch, from 0, which seeds as none would


def pad(sentences: list[NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A matrix with PAD after each sentence, and the sentences' lengths."""
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    matrix = np.full((len(sentences), int(lengths.max())), PAD, dtype=np.int64)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = np.concatenate(sentences)
    return matrix, lengths


def collate(
    ids: list[int], sources: list[NDArray[np.int32]], targets: list[NDArray[np.int32]]
) -> Batch:
    """Pad token ids (no special tokens yet) to a batch."""
    bos, eos = np.array([BOS], dtype=np.int32), np.array([EOS], dtype=np.int32)
    source, source_lengths = pad([np.concatenate((pieces, eos)) for pieces in sources])
    target_in, target_lengths = pad([np.concatenate((bos, pieces)) for pieces in targets])
    target_out, _ = pad([np.concatenate((pieces, eos)) for pieces in targets])
    of = torch.from_numpy
    return Batch(
        ids=of(np.array(ids)), source=of(source), source_lengths=of(source_lengths),
        target_in=of(target_in), target_out=of(target_out), target_lengths=of(target_lengths),
        source_tokens=int(source_lengths.sum()), target_tokens=int(target_lengths.sum()),
    )  # fmt: skip


def by_shape(source_lengths: Lengths, target_lengths: Lengths) -> Places:
    """An order in which neighbours have nearly the same source and the same target length.

    By the longer side; within that by the difference, up and down in turn like a snake, so that
    the step to the next length is small too. Of a dozen orders tried this one pads least.
    """
    longest = np.maximum(source_lengths, target_lengths)
    difference = source_lengths - target_lengths
    return np.lexsort((np.where(longest % 2 == 0, difference, -difference), longest))


def cut(
    order: Places,
    source_lengths: Lengths,
    target_lengths: Lengths,
    tokens_per_batch: int,
) -> list[Places]:
    """Cut an order of pairs into batches whose padded source and target each fit the budget.

    Each batch takes as many of the next pairs as fit; a pair beyond the budget stands alone.
    """
    longest = np.maximum(source_lengths[order], target_lengths[order])
    batches, start = [], 0
    while start < len(order):
        most = max(1, tokens_per_batch // int(longest[start]))  # none is narrower than its first
        widths = np.maximum.accumulate(longest[start : start + most], dtype=np.int64)
        fitting = np.count_nonzero(widths * np.arange(1, len(widths) + 1) <= tokens_per_batch)
        batches.append(order[start : start + max(1, int(fitting))])
        start += len(batches[-1])
    return batches


class TokenBatches:
    """The endless stream of training batches of one process (a batch sampler).

    Every epoch is a permutation of its pairs: shuffled, dealt to pools of one size, `pool_batches`
    batches or more (a small one would pad more), each pool sorted by length and cut into batches,
    and the batches shuffled. Batch k of the whole run belongs to process k mod `world_size`.

    Args:
        source_lengths, target_lengths: the most tokens each pair may have, special tokens included.
        weights: how often each pair occurs in an epoch (`mixing.occurrences`); 0 leaves it out.
        tokens_per_batch: bound on rows × width of the padded source, and of the padded target.
        skip: how many batches all processes together, however many they were, have done already
            (resuming).
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        weights: Weights,
        *,
        tokens_per_batch: int,
        pool_batches: int,
        seed: int,
        skip: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        widths = np.maximum(source_lengths, target_lengths)
        longest = int(widths.max(initial=0, where=weights > 0))
        if longest == 0:
            raise UserError(
                "no training pairs are left: see the report of `translate prepare`, or raise "
                "data.max_length"
            )
        if longest > tokens_per_batch:
            raise UserError(
                f"a training pair of {longest} tokens does not fit a batch of {tokens_per_batch} "
                "(data.tokens_per_batch): raise it or lower data.max_length"
            )
        self.source_lengths, self.target_lengths, self.weights = (
            source_lengths, target_lengths, weights
        )  # fmt: skip
        self.tokens_per_batch, self.pool_batches = tokens_per_batch, pool_batches
        self.seed, self.skip = seed, skip
        self.rank, self.world_size = rank, world_size

    def epoch(self, epoch: int) -> list[Places]:
        """All batches of one epoch, in the order of training."""
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(pairs_of(self.weights, epoch))
        widths = np.maximum(self.source_lengths[order], self.target_lengths[order])
        pools = max(1, int(widths.sum()) // (self.pool_batches * self.tokens_per_batch))
        batches: list[Places] = []
        for pool in np.array_split(order, pools):
            # in place: an epoch is held once
            pool[:] = pool[by_shape(self.source_lengths[pool], self.target_lengths[pool])]
            batches += cut(pool, self.source_lengths, self.target_lengths, self.tokens_per_batch)
        return [batches[index] for index in generator.permutation(len(batches))]

    def __iter__(self) -> Iterator[list[Draw]]:
        position = 0  # batches of all processes
        for epoch in itertools.count():
            occurred = np.zeros(len(self.weights), dtype=np.uint16)
            for batch in self.epoch(epoch):
                if position >= self.skip and position % self.world_size == self.rank:
                    yield _draws(epoch, batch, occurred)
                else:
                    np.add.at(occurred, batch, 1)
                position += 1


def _draws(epoch: int, batch: Places, occurred: NDArray[np.uint16]) -> list[Draw]:
    draws = []
    for pair in batch.tolist():
        draws.append(Draw(epoch, pair, int(occurred[pair])))
        occurred[pair] += 1
    return draws
