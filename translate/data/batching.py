"""Batches of at most so many padded tokens, from pools sorted by length.

The order of training is a pure function of (seed, batch index): to resume is to skip. One pool is
held at a time, so that memory does not grow with the corpus.
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

from translate.data.mixing import Draws, Lengths, Mixture
from translate.data.pair_table import Places
from translate.data.shuffle import shuffled
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

TOKENS_ON_CPU = 4_096  # what `data.tokens_per_batch=auto` is where no GPU's memory sets it
BATCH_COST = 0.5  # what one more batch costs, in positions of padding, as a share of its tokens
PARTS = 32  # of a batch: in pieces of this size the sorted pairs are dealt out


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

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes as bytes: tensors would go as files, which takes twice as long."""
        return _of_arrays, tuple(x.numpy(force=True) if isinstance(x, Tensor) else x for x in self)

    def repeated(self, times: int) -> Batch:
        """All sentences, and then all of them again."""
        again: dict[str, Any] = {
            name: torch.cat([part] * times) if isinstance(part, Tensor) else part * times
            for name, part in self._asdict().items()
            if part is not None
        }
        return self._replace(**again)


def _of_arrays(*parts: Any) -> Batch:
    columns: list[Any] = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in parts]
    return Batch(*columns)


class Draw(NamedTuple):
    """One pair of one epoch: what subword sampling is seeded with."""

    epoch: int
    pair: int
    occurrence: int  # how often the pair came before in the epoch; 0 seeds as if left out


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


def cut(source_lengths: Lengths, target_lengths: Lengths, tokens_per_batch: int) -> list[slice]:
    """Cut pairs in the order of `by_shape` into batches whose padded source and target each fit.

    Pairs are cut only between small pieces of neighbours; of all such ways this has the least
    padding, a batch counting as `BATCH_COST` · tokens_per_batch more. A pair beyond the budget
    stands alone.
    """
    if not len(source_lengths):
        return []
    longest = np.maximum(source_lengths, target_lengths)
    part = np.cumsum(longest, dtype=np.int64) * PARTS // tokens_per_batch
    pieces = np.flatnonzero(np.diff(part, prepend=-1) | np.diff(longest, prepend=-1))
    borders = np.append(pieces, len(longest))
    source, target = (
        np.maximum.reduceat(side, pieces) for side in (source_lengths, target_lengths)
    )
    following = _cheapest(borders, source, target, tokens_per_batch)
    batches, piece = [], 0
    while piece < len(pieces):
        batches.append(slice(borders[piece], borders[following[piece]]))
        piece = following[piece]
    return batches


def _cheapest(
    borders: Places, source: Lengths, target: Lengths, tokens_per_batch: int
) -> Int[np.ndarray, "pieces"]:
    """For each piece the one that a batch beginning with it had best end before.

    The best way from a piece to the end is found from those of the pieces after it (dynamic
    programming).

    Args:
        borders: of the pieces, counted in pairs.
        source, target: widths of the pieces.
    """
    limits = _limits(borders.tolist(), np.maximum(source, target).tolist(), tokens_per_batch)
    cost = np.zeros(len(borders))  # from each piece to the end
    following = np.zeros(len(source), dtype=np.int64)
    for first in reversed(range(len(source))):
        limit = limits[first]
        rows = borders[first + 1 : limit + 1] - borders[first]
        width = np.maximum.accumulate(source[first:limit])
        width += np.maximum.accumulate(target[first:limit])
        total = rows * width + cost[first + 1 : limit + 1]
        best = int(total.argmin())
        cost[first] = total[best] + BATCH_COST * tokens_per_batch
        following[first] = first + 1 + best
    return following


def _limits(borders: list[int], longest: list[int], tokens_per_batch: int) -> list[int]:
    """For each piece the first one after it that fits no batch beginning with it.

    Pieces come in the order of their length, so that the last of a batch is its longest.
    """
    limits, limit = [], 0
    for first, start in enumerate(borders[:-1]):
        while limit < len(longest) and (borders[limit + 1] - start) * longest[limit] <= (
            tokens_per_batch
        ):
            limit += 1
        limit = max(limit, first + 1)
        limits.append(limit)
    return limits


class TokenBatches:
    """The endless stream of training batches of one process (a batch sampler).

    Every epoch is a permutation of its pairs: shuffled, dealt to pools of one size, `pool_batches`
    batches or more (a small one would pad more), each pool sorted by length and cut into batches,
    and the batches of a pool shuffled. Batch k of the whole run belongs to process k mod
    `world_size`.

    Args:
        mixture: the pairs, with the most tokens each may have, special tokens included.
        tokens_per_batch: bound on rows × width of the padded source, and of the padded target.
        skip: how many batches all processes together, however many they were, have done already
            (resuming).
        begun: the last epoch that is known to have begun by then, and the batches before it.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        tokens_per_batch: int,
        pool_batches: int,
        seed: int,
        skip: int = 0,
        begun: tuple[int, int] = (0, 0),
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not mixture.extent.pairs:
            raise UserError(
                "no training pairs are left: see the report of `translate prepare`, or raise "
                "data.max_length"
            )
        if mixture.extent.longest > tokens_per_batch:
            raise UserError(
                f"a training pair of {mixture.extent.longest} tokens does not fit a batch of "
                f"{tokens_per_batch} (data.tokens_per_batch): raise it or lower data.max_length"
            )
        self.mixture, self.tokens_per_batch, self.seed = mixture, tokens_per_batch, seed
        pool = pool_batches * tokens_per_batch
        self.pools = max(1, int(mixture.extent.longer_sides) // pool)  # of an epoch
        self.skip, self.rank, self.world_size = skip, rank, world_size
        self.epochs = [begun]  # those begun, each with the batches before it

    def begun_by(self, batches: int) -> tuple[int, int]:
        """The epoch of a batch whose number is known, and the batches before that epoch."""
        return max(epoch for epoch in self.epochs if epoch[1] <= batches)

    def epoch(self, epoch: int) -> Iterator[Draws]:
        """All batches of one epoch, in the order of training."""
        return itertools.chain.from_iterable(
            self.pool(number, epoch) for number in range(self.pools)
        )

    def pool(self, number: int, epoch: int) -> Iterator[Draws]:
        """The batches of one of the pools of an epoch."""
        slots = self.mixture.slots
        start, end = (slots * border // self.pools for border in (number, number + 1))
        drawn = self.mixture.draws(
            shuffled(np.arange(start, end), slots, (self.seed, epoch)), epoch
        )
        drawn = drawn.at(by_shape(drawn.source_lengths, drawn.target_lengths))
        batches = cut(drawn.source_lengths, drawn.target_lengths, self.tokens_per_batch)
        order = np.random.default_rng((self.seed, epoch, number)).permutation(len(batches))
        return (drawn.at(batches[index]) for index in order)

    def __iter__(self) -> Iterator[list[Draw]]:
        first, position = self.epochs[0]  # position: batches of all processes
        for epoch in itertools.count(first):
            self.epochs.append((epoch, position))
            for batch in self.epoch(epoch):
                if position >= self.skip and position % self.world_size == self.rank:
                    columns = batch.pairs.tolist(), batch.occurrences.tolist()
                    yield [Draw(epoch, *pair) for pair in zip(*columns, strict=True)]
                position += 1
