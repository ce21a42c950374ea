"""Batches of at most so many padded tokens, from pools sorted by length.

The order of training is a pure function of (seed, batch index): to resume is to skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

TOKENS_ON_CPU = 4_096  # what `data.tokens_per_batch=auto` is where no GPU's memory sets it


class Batch(NamedTuple):
    """Pairs of sentences, padded to the longest of the batch."""

    ids: Int[Tensor, "B"]  # which pairs of the corpus these are
    source: Int[Tensor, "B S"]  # x </s>
    source_lengths: Int[Tensor, "B"]
    target_in: Int[Tensor, "B T"]  # <s> y
    target_out: Int[Tensor, "B T"]  # y </s>
    target_lengths: Int[Tensor, "B"]
    gold: Float[Tensor, "B T S"] | None = None  # where attention should look (`guidance.gold_rows`)

    def repeated(self, times: int) -> Batch:
        """All sentences, and then all of them again."""
        parts = {name: part for name, part in self._asdict().items() if part is not None}
        return self._replace(**{name: torch.cat([part] * times) for name, part in parts.items()})


class Draw(NamedTuple):
    """One pair of one epoch: what subword sampling is seeded with."""

    epoch: int
    pair: int


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
    source, source_lengths = pad([np.concatenate((ids, eos)) for ids in sources])
    target_in, target_lengths = pad([np.concatenate((bos, ids)) for ids in targets])
    target_out, _ = pad([np.concatenate((ids, eos)) for ids in targets])
    arrays = (np.array(ids), source, source_lengths, target_in, target_out, target_lengths)
    return Batch(*map(torch.from_numpy, arrays))


def by_shape(
    source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """An order in which neighbours have nearly the same source and the same target length.

    By the longer side; within that by the difference, up and down in turn like a snake, so that
    the step to the next length is small too. Of a dozen orders tried this one pads least.
    """
    longest = np.maximum(source_lengths, target_lengths)
    difference = source_lengths - target_lengths
    return np.lexsort((np.where(longest % 2 == 0, difference, -difference), longest))


def cut(
    order: NDArray[np.int64],
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    tokens_per_batch: int,
) -> list[NDArray[np.int64]]:
    """Cut an order of pairs into batches whose padded source and target each fit the budget."""
    longest = np.maximum(source_lengths, target_lengths)[order]
    batches, start, width = [], 0, 0
    for position, length in enumerate(longest):
        width = max(width, int(length))
        if position > start and width * (position + 1 - start) > tokens_per_batch:
            batches.append(order[start:position])
            start, width = position, int(length)
    batches.append(order[start:])
    return batches


class TokenBatches:
    """The endless stream of training batches of one process (a batch sampler).

    Every epoch is a permutation of the corpus: shuffled, cut into pools of about `pool_batches`
    batches, each pool sorted by length and cut into batches, and the batches shuffled. Batch k of
    the whole run belongs to process k mod `world_size`.

    Args:
        source_lengths, target_lengths: tokens of each pair, special tokens included.
        tokens_per_batch: bound on rows × width of the padded source, and of the padded target.
        skip: how many batches this process has done already (resuming).
    """

    def __init__(
        self,
        source_lengths: NDArray[np.int64],
        target_lengths: NDArray[np.int64],
        *,
        tokens_per_batch: int,
        pool_batches: int,
        seed: int,
        skip: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if len(source_lengths) == 0:
            raise UserError("no training pairs are left: see the report of `translate prepare`")
        longest = int(max(source_lengths.max(), target_lengths.max()))
        if longest > tokens_per_batch:
            raise UserError(
                f"a training pair of {longest} tokens does not fit a batch of {tokens_per_batch} "
                "(data.tokens_per_batch): raise it or lower data.max_length"
            )
        self.source_lengths, self.target_lengths = source_lengths, target_lengths
        self.tokens_per_batch, self.pool_batches = tokens_per_batch, pool_batches
        self.seed, self.skip = seed, skip
        self.rank, self.world_size = rank, world_size

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """All batches of one epoch, in the order of training."""
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.source_lengths))
        mean = float(np.maximum(self.source_lengths, self.target_lengths).mean())
        pool = max(1, int(self.pool_batches * self.tokens_per_batch / mean))
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            part = part[by_shape(self.source_lengths[part], self.target_lengths[part])]
            batches += cut(part, self.source_lengths, self.target_lengths, self.tokens_per_batch)
        return [batches[index] for index in generator.permutation(len(batches))]

    def __iter__(self) -> Iterator[list[Draw]]:
        done = position = epoch = 0  # batches of this process; batches of all processes
        while True:
            for batch in self.epoch(epoch):
                mine = position % self.world_size == self.rank
                position += 1
                if not mine:
                    continue
                done += 1
                if done > self.skip:
                    yield [Draw(epoch, int(pair)) for pair in batch]
            epoch += 1
