"""The LightningDataModule: batches of token ids from a prepared corpus."""

from __future__ import annotations

import logging
import signal
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import lightning as L
import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from pyarrow import Table
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from translate.data.batching import (
    MEASURED,
    SIDES,
    Batch,
    Draw,
    Lengths,
    LengthsOf,
    Mixture,
    PairLengths,
    TokenBatches,
    by_shape,
    collate,
    cut,
    lengths,
    spread,
)
from translate.data.corpus import Corpus
from translate.data.modifiers import Modified
from translate.data.pairs import at
from translate.data.sources import NONE_SHORT, UNCHANGED, Modifiers, Short
from translate.data.tokenizer import Tokenizers
from translate.errors import UserError
from translate.names import on_demand

log = logging.getLogger(__name__)

GOLD = "translate.extras.gold_attention:gold_attention"
MOST_JUDGED = 1024  # pieces of a dev pair's side; time and memory go by the product of both


class Pairs(Dataset[Batch]):
    """The training pairs; a whole batch is fetched and padded at once.

    With subword sampling the text is segmented anew here (in the loader's workers), seeded by
    (seed, epoch, pair, occurrence), so that neither workers nor batching change what is drawn.

    With `guided` (and no sampling) a batch says where attention should look, too.

    Args:
        tokenizers: how many of the pairs, one after the other, are cut by which.
        drawn: with subword sampling, the most tokens that sources and targets may have.
        modified: the pairs that are changed; they have their best segmentation.
    """

    def __init__(
        self,
        table: Table,
        tokenizers: Sequence[tuple[int, Tokenizers]],
        *,
        drawn: LengthsOf | None,
        guided: bool,
        seed: int,
        modified: Modified | None = None,
    ) -> None:
        self.table, self.modified = table, modified
        self.borders = list(accumulate(pairs for pairs, _ in tokenizers))
        self.tokenizers = [chosen for _, chosen in tokenizers]
        self.drawn, self.guided, self.seed = drawn, guided, seed

    def __getitems__(self, draws: list[Draw]) -> Batch:
        pairs = [draw.pair for draw in draws]
        if self.drawn is None:
            sides = self._ids("source", pairs), self._ids("target", pairs)
        else:
            sides = self._sampled(draws, *self.drawn(np.array(pairs)))
        if self.modified is not None:
            epochs, places, occurrences = map(np.array, zip(*draws, strict=True))
            # a batch is of one epoch
            for place, *pieces in self.modified.pieces(places, occurrences, int(epochs[0])):
                for side, ids in zip(sides, pieces, strict=True):
                    side[place] = ids
        batch = collate(pairs, *sides)
        return batch._replace(gold=self._gold(batch)) if self.guided else batch

    def _sampled(
        self, draws: list[Draw], source_most: Lengths, target_most: Lengths
    ) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
        """Draw the pieces of each pair; at most so many tokens, </s> included."""
        sides: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = [], []
        texts = (at(self.table, name, [draw.pair for draw in draws]) for name in SIDES)
        most = zip(source_most.tolist(), target_most.tolist(), strict=True)
        for draw, both, room in zip(draws, zip(*texts, strict=True), most, strict=True):
            seeds = np.random.default_rng((self.seed, *draw)).integers(2**31, size=2)
            chosen = self._tokenizers_of(draw.pair)
            tokenizers = chosen.source, chosen.target
            for side, tokenizer, text, seed, tokens in zip(
                sides, tokenizers, both, seeds.tolist(), room, strict=True
            ):
                ids = tokenizer.sample(text, seed, tokens - 1)
                side.append(np.array(ids, dtype=np.int32))
        return sides

    def _ids(self, side: str, pairs: list[int]) -> list[NDArray[np.int32]]:
        """Read in place from the memory-mapped table."""
        column = self.table.column(f"{side}_ids")
        return [column[pair].values.to_numpy() for pair in pairs]

    def _tokenizers_of(self, pair: int) -> Tokenizers:
        return self.tokenizers[bisect_right(self.borders, pair)]

    def _gold(self, batch: Batch) -> Tensor:
        """Where attention should look: the rows of each pair, padded with zeros."""
        pairs = batch.ids.tolist()
        rows = (at(self.table, name, pairs) for name in ("source", "target", "alignment"))
        shapes = zip(batch.target_lengths.tolist(), batch.source_lengths.tolist(), strict=True)
        gold = torch.zeros(*batch.target_in.shape, batch.source.shape[1])
        for row, pair, *texts, (height, width) in zip(gold, pairs, *rows, shapes, strict=True):
            matrix = on_demand(GOLD)(self._tokenizers_of(pair), *texts, (height, width))
            row[:height, :width] = torch.from_numpy(matrix)
        return gold


class TranslationData(L.LightningDataModule):
    """The feeder of training, with token-budget batches, and of validation, with the dev pairs.

    Args:
        max_length: training pairs with more pieces on a side are left out.
        workers: processes that make training batches; 0: this one makes them.
        sampling: segment the training text anew each epoch (subword regularisation). Batches are
            then planned for nearly the longest segmentations that are drawn (`PairLengths`).
        guided: say where attention should look, from the gold alignments of the training pairs.

    Raises:
        UserError: there are no gold alignments to guide by.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        max_length: int,
        tokens_per_batch: int,
        pool_batches: int,
        workers: int,
        sampling: bool,
        guided: bool,
        seed: int,
        modifiers: Modifiers = UNCHANGED,
        short: Short = NONE_SHORT,
    ) -> None:
        super().__init__()
        if guided and "alignment" not in corpus.train.column_names:
            raise UserError(
                "trainer.guided_alignment.weight needs gold alignments, but the training pairs of "
                "this corpus have none: choose data=toy, or data=files with data.alignments, or "
                "set it to 0"
            )
        self.corpus, self.max_length, self.seed = corpus, max_length, seed
        self.judged = _judged(corpus.dev, most=max(MOST_JUDGED, max_length))
        self.sampling, self.guided = sampling, guided
        self.tokens_per_batch, self.pool_batches = tokens_per_batch, pool_batches
        self.workers, self.short = workers, short
        tokenizers = [(part.pairs, corpus.tokenizers.tagged(part.tag)) for part in corpus.parts]
        self.modified = Modified(
            modifiers, corpus.train, tokenizers, max_length=max_length, seed=seed
        )
        self.skip = 0  # batches of all processes that were done when this one began …
        self.steps_before = 0  # … how many times each process had taken one …
        self.begun = (0, 0)  # … and the epoch, with the batches before it
        self.order: TokenBatches | None = None  # of the batches that training takes

    @cached_property
    def mixture(self) -> Mixture:
        """The training pairs, with the tokens of their best segmentations."""
        return self._mixture(PairLengths(self.corpus.train, max_length=self.max_length))

    @cached_property
    def planned(self) -> Mixture:
        """The training pairs, with the most tokens each may have."""
        if not self.sampling:
            return self.mixture
        train, tokenizers = self.corpus.train, self.corpus.tokenizers
        spreads = []
        start = 0
        for part in self.corpus.parts:  # each in its own language and script
            sample = range(start, start + part.pairs, max(1, part.pairs // MEASURED))
            source = spread(tokenizers.source, at(train, "source", sample))
            target = spread(tokenizers.target, at(train, "target", sample))
            spreads.append((part.pairs, source, target))
            start += part.pairs
        return self._mixture(PairLengths(train, max_length=self.max_length, spreads=spreads))

    def _mixture(self, lengths: PairLengths) -> Mixture:
        parts = [(part.pairs, part.weight) for part in self.corpus.parts]
        # pieces of a source, without </s>
        return Mixture(parts, lengths, short=(self.short.pieces + 1, self.short.weight))

    def batches(self) -> TokenBatches:
        """The order of training, of this process."""
        trainer = self.trainer
        return TokenBatches(
            self.planned,
            tokens_per_batch=self.tokens_per_batch, pool_batches=self.pool_batches,
            seed=self.seed, skip=self.skip, begun=self.begun,
            replanned=self.modified.replanned,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )  # fmt: skip

    def train_dataloader(self) -> DataLoader[Batch]:
        pairs = Pairs(
            self.corpus.train, self.modified.parts,
            drawn=self.planned.lengths if self.sampling else None,
            guided=self.guided, seed=self.seed, modified=self.modified,
        )  # fmt: skip
        self.order = self.batches()
        return DataLoader(
            pairs, batch_sampler=self.order, collate_fn=_as_is,
            num_workers=self.workers, persistent_workers=self.workers > 0,
            worker_init_fn=_leave_signals_to_the_trainer, pin_memory=self._feeds_a_gpu(),
        )  # fmt: skip

    def _feeds_a_gpu(self) -> bool:
        """Tell whether a GPU gets the batches: from pinned memory it copies while it computes."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def val_dataloader(self) -> DataLoader[Batch]:
        table = self.corpus.dev
        source, target = lengths(table)
        order = by_shape(source, target)
        order = order[self.judged[order]]
        batches = [
            [Draw(0, pair, 0) for pair in order[batch].tolist()]
            for batch in cut(source[order], target[order], self.tokens_per_batch)
        ]
        tokenizers = [(len(table), self.corpus.tokenizers)]
        pairs = Pairs(table, tokenizers, drawn=None, guided=False, seed=self.seed)
        return DataLoader(pairs, batch_sampler=batches, collate_fn=_as_is)

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        assert self.order is not None
        steps = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready
        done = self.skip + (steps - self.steps_before) * self.trainer.world_size
        return {"batches_done": done, "steps": steps, "epoch_begun": self.order.begun_by(done)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.skip, self.steps_before = state_dict["batches_done"], state_dict["steps"]
        self.begun = state_dict.get("epoch_begun", (0, 0))  # older checkpoints have none


def _judged(dev: Table, *, most: int) -> Bool[np.ndarray, "pairs"]:
    """Choose the pairs that count for dev/loss: a very long line may need too much memory.

    Raises:
        UserError: none does.
    """
    longest = np.maximum(*lengths(dev)) - 1  # </s> is no piece here, as in data.max_length
    judged: Bool[np.ndarray, "pairs"] = longest <= most
    if not judged.any():
        raise UserError(
            f"every dev pair has more than {most:,} pieces: cut the lines into sentences"
        )
    if not judged.all():
        log.warning(
            "%d of %d dev pairs have more than %d pieces and are left out of dev/loss, the first "
            "of them dev pair %d",
            (~judged).sum(), len(judged), most, 1 + judged.argmin(),
        )  # fmt: skip
    return judged


def _leave_signals_to_the_trainer(worker: int) -> None:
    """Ctrl-C and a cluster's signals reach all processes; the last step still needs its batch."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def _as_is(batch: Any) -> Any:
    return batch
