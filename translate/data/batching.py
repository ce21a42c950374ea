"""Batches of at most so many padded tokens, from pools sorted by length.

The order of training is a pure function of (seed, batch index): to resume is to skip. One pool is
held at a time, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import torch
from jaxtyping import Float, Int, UInt64
from numpy.typing import NDArray
from torch import Tensor

from translate.data.pairs import Places
from translate.data.tokenizer import Tokenizer
from translate.errors import UserError
from translate.vocabulary import BOS, EOS, PAD

ROUNDS = 12  # of row and column in turn; fewer favour some orders of a handful of numbers
Lengths = Int[np.ndarray, "pairs"]  # tokens of each pair's source or target
# of the pairs at some places, the tokens of source and target; 0 of both where one is left out
LengthsOf = Callable[[Places], tuple[Lengths, Lengths]]
BLOCK = 1 << 18  # pairs looked at together
GOLDEN = np.uint32(2_654_435_769)  # 2³² / golden ratio
SIDES = ("source", "target")
MEASURED = 1_000  # sentences
WIDE = 2.0  # standard deviations above the mean: a longer draw, one in forty, is drawn again
TOKENS_ON_CPU = 4_096  # what `data.tokens_per_batch=auto` is where no GPU's memory sets it
BATCH_COST = 0.5  # what one more batch costs, in positions of padding, as a share of its tokens
PARTS = 32  # of a batch: in pieces of this size the sorted pairs are dealt out


# A random order of a corpus that is computed place by place: it is never held in memory.


def shuffled(
    places: Int[np.ndarray, "places"], size: int, seed: Sequence[int]
) -> Int[np.ndarray, "places"]:
    """Return the numbers at these places of a random permutation of range(size).

    A Feistel network on the rows and columns of a table with at least `size` cells, where a number
    that falls outside the range is moved again until it does not (Black & Rogaway 2002, "Ciphers
    with arbitrary finite domains").
    """
    columns = math.isqrt(size - 1) + 1
    rows = -(-size // columns)  # fewer than `columns` cells are too many
    keys = np.random.default_rng(seed).integers(2**64, size=ROUNDS, dtype=np.uint64)
    numbers = places.astype(np.uint64)
    outside = np.ones(len(numbers), dtype=bool)
    while outside.any():
        row, column = np.divmod(numbers[outside], np.uint64(columns))
        for change, key in enumerate(keys):
            if change % 2:
                row = (row + mixed(column + key)) % np.uint64(rows)
            else:
                column = (column + mixed(row + key)) % np.uint64(columns)
        numbers[outside] = row * np.uint64(columns) + column
        outside = numbers >= size
    return numbers.astype(np.int64)


def mixed(numbers: UInt64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    """Halves of numbers that look random: SplitMix64's last steps (Steele, Lea & Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers >> np.uint64(32)  # the sum with a row cannot pass 2⁶⁴


# Which pairs an epoch has, and how often: corpora mixed by weight. It is a function of (weight,
# place, epoch) alone: nothing is drawn, nothing need be remembered to go on in the middle of a run,
# and nothing is kept of a pair.


class Draws(NamedTuple):
    """Pairs as an epoch has them."""

    pairs: Places
    occurrences: Int[np.ndarray, "pairs"]  # of the pair in the epoch, from 0
    source_lengths: Lengths
    target_lengths: Lengths

    def at(self, indices: Int[np.ndarray, "some"] | slice) -> Draws:
        """Some of them."""
        return Draws(*(column[indices] for column in self))


class Extent(NamedTuple):
    """All pairs that are not left out; the sums are of an epoch, on average."""

    pairs: int
    longest: int  # tokens of the longest sentence
    source_tokens: float
    target_tokens: float
    longer_sides: float  # tokens of each pair's longer side


class Mixture:
    """Corpora one after the other, whose pairs each have a length and a weight.

    An epoch has `slots`, as many for each pair as the pair may occur in it.

    Args:
        parts: pairs and weight of each corpus, the weight being how often its pairs occur in an
            epoch (`occurrences`).
        short: sources of at most so many tokens, </s> included, occur so many times as often.
    """

    def __init__(
        self,
        parts: Sequence[tuple[int, float]],
        lengths: LengthsOf,
        *,
        short: tuple[int, float] = (0, 1.0),
    ) -> None:
        sizes = np.array([pairs for pairs, _ in parts], dtype=np.int64)
        self.lengths = lengths
        self._weights = np.array([weight for _, weight in parts], dtype=np.float64)
        self._short, self._times = short
        self.most = np.ceil(self._weights * self._times).astype(np.int64)  # occurrences in an epoch
        self.first = np.cumsum([0, *sizes])  # pair of each corpus
        self.first_slot = np.cumsum([0, *(sizes * self.most)])

    @property
    def pairs(self) -> int:
        """The number of all pairs, those that are left out too."""
        return int(self.first[-1])

    @property
    def slots(self) -> int:
        """The number of slots of an epoch."""
        return int(self.first_slot[-1])

    @cached_property
    def extent(self) -> Extent:
        """The extent of the mixture, from all pairs, one block after the other."""
        used = longest = 0
        sums = np.zeros(3)
        for start in range(0, self.pairs, BLOCK):
            places = np.arange(start, min(start + BLOCK, self.pairs))
            source, target = self.lengths(places)
            part = np.searchsorted(self.first, places, side="right") - 1
            weights = self._weights_of(part, source)
            longer = np.maximum(source, target)
            used += int(np.count_nonzero(longer * weights))
            longest = max(longest, int(longer.max(initial=0, where=weights > 0)))
            sums += [(side * weights).sum() for side in (source, target, longer)]
        return Extent(used, longest, *sums.tolist())

    def draws(self, slots: Int[np.ndarray, "slots"], epoch: int) -> Draws:
        """The pairs that stand in some slots of an epoch; some slots are empty."""
        part = np.searchsorted(self.first_slot, slots, side="right") - 1
        place, occurrence = np.divmod(slots - self.first_slot[part], self.most[part])
        pairs = self.first[part] + place
        drawn = Draws(pairs, occurrence, *self.lengths(pairs))
        often = occurrences(self._weights_of(part, drawn.source_lengths), pairs, epoch)
        return drawn.at((occurrence < often) & (drawn.source_lengths > 0))

    def _weights_of(
        self, part: Int[np.ndarray, "pairs"], source: Lengths
    ) -> Float[np.ndarray, "pairs"]:
        weights: Float[np.ndarray, "pairs"] = self._weights[part]
        return np.where(source <= self._short, weights * self._times, weights)


def occurrences(
    weights: Float[np.ndarray, "pairs"], places: Places, epoch: int
) -> Int[np.ndarray, "pairs"]:
    """Return how often pairs of these weights occur in an epoch.

    ⌊(e + 1)w + u⌋ - ⌊ew + u⌋ times, with u in [0, 1) of the pair's own: in k epochs a pair of
    weight w occurs ⌊kw⌋ or ⌈kw⌉ times, so that none is forgotten, and one of a whole weight w times
    in each. Multiples of the golden ratio spread u evenly over any run of places (Knuth 1973,
    section 6.4), so that every epoch has its share of each corpus.
    """
    offsets = (places.astype(np.uint32) * GOLDEN) / 2.0**32  # modulo 2³², as unsigned integers are
    before, after = (np.floor(weights * e + offsets) for e in (epoch, epoch + 1))
    return (after - before).astype(np.int64)


def by_temperature(pairs: Mapping[str, int], temperature: float) -> dict[str, float]:
    """The weight of each corpus, when they are drawn in the proportion (n_i / Σn)^(1/T).

    Arivazhagan et al. 2019: T = 1 draws every pair alike, a large T every corpus. The largest
    corpus has weight 1, so that an epoch is all of it; the others (n_max / n_i)^(1 - 1/T).
    """
    most = max(pairs.values())
    return {name: (most / count) ** (1 - 1 / temperature) for name, count in pairs.items()}


# How many tokens the training pairs have: batches are planned before anything is drawn. The words
# of a sentence are drawn apart, so that with subword sampling the pieces of a draw have a mean and
# a variance in proportion to its words. Both are measured, in pieces of the best segmentation.


class Spread(NamedTuple):
    """The pieces that a draw has for each of the best segmentation."""

    mean: float
    variance: float


def spread(tokenizer: Tokenizer, texts: Sequence[str]) -> Spread:
    """Measure the spread of the draws of these sentences; it is the same at each call."""
    best = np.array([len(tokenizer.encode(text)) for text in texts])
    drawn = np.array([len(tokenizer.sample(text, seed)) for seed, text in enumerate(texts)])
    mean = drawn.sum() / max(1, best.sum())
    variance = ((drawn - mean * best) ** 2).sum() / max(1, best.sum())
    return Spread(float(mean), float(variance))


def lengths(table: pyarrow.Table) -> tuple[Lengths, Lengths]:
    """Tokens of each source and target, </s> (or <s>) included."""
    source, target = (table.column(f"{side}_length").to_numpy() + np.int32(1) for side in SIDES)
    return source, target


class PairLengths:
    """The tokens of some training pairs, </s> (or <s>) included; 0 where one is left out.

    Args:
        max_length: pairs with more pieces on a side are left out.
        spreads: with subword sampling, of how many pairs, one after the other, the segmentations
            of each source and target are drawn with which spread: the tokens are then nearly the
            most that a draw may have (`_most_drawn`).
    """

    def __init__(
        self,
        table: pyarrow.Table,
        *,
        max_length: int,
        spreads: Sequence[tuple[int, Spread, Spread]] = (),
    ) -> None:
        columns = [table.column(f"{side}_length") for side in SIDES]
        self.sides = [[chunk.to_numpy() for chunk in column.chunks] for column in columns]
        self.first = np.cumsum([0, *map(len, self.sides[0])])
        self.max_length = max_length
        self.borders = np.cumsum([pairs for pairs, *_ in spreads])
        # of each side the means, and the variances, of all parts
        self.spreads = [np.array([part[side] for part in spreads]).T for side in (1, 2)]

    def __call__(self, places: Places) -> tuple[Lengths, Lengths]:
        source, target = self._pieces(places)
        kept = np.maximum(source, target) <= self.max_length
        if len(self.borders):
            part = np.searchsorted(self.borders, places, side="right")
            source, target = (
                _most_drawn(side, *spread[:, part])
                for side, spread in zip((source, target), self.spreads, strict=True)
            )
        return (source + 1) * kept, (target + 1) * kept

    def _pieces(self, places: Places) -> list[Lengths]:
        """Read in place, chunk by chunk: pyarrow's `take` copies all of a column at each call."""
        order = np.argsort(places)
        rising = places[order]
        borders = np.searchsorted(rising, self.first)
        sides = [np.empty(len(places), dtype=np.int64) for _ in SIDES]
        for chunk in np.flatnonzero(np.diff(borders)):
            here = slice(*borders[chunk : chunk + 2])
            rows = rising[here] - self.first[chunk]
            for values, side in zip(sides, self.sides, strict=True):
                values[order[here]] = side[chunk][rows]
        return sides


def _most_drawn(
    pieces: Int[np.ndarray, "n"], mean: Float[np.ndarray, "n"], variance: Float[np.ndarray, "n"]
) -> Int[np.ndarray, "n"]:
    """The most pieces that a draw of each sentence shall have; never fewer than the best has.

    Args:
        pieces: of the best segmentations.
        mean, variance: the spread of each sentence's draws.
    """
    likely = np.ceil(mean * pieces + WIDE * np.sqrt(variance * pieces))
    most: Int[np.ndarray, "n"] = np.maximum(likely.astype(pieces.dtype), pieces)
    return most


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
    gold: Float[Tensor, "B T S"] | None = None  # where attention should look (`gold_rows`)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send bytes between processes: tensors would go as files, which takes twice as long."""
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
    """Return, for each piece, the best one for a batch that begins with it to end before.

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
    """Return, for each piece, the first one after it that fits no batch beginning with it.

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
        replanned: gives the pairs of an epoch the lengths that they have when they are changed.
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
        replanned: Callable[[Draws, int], Draws] = lambda drawn, epoch: drawn,
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
        self.replanned = replanned
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
        drawn = self.replanned(drawn, epoch)
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
