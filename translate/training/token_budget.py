"""How many tokens a batch may have where the configuration says `data.tokens_per_batch=auto`.

On a GPU: as many as fit. What a step needs is affine in the rows of a batch of equally long
sentences, so that two probes tell it; the sentences are as long as the longest of the batches, for
attention may take memory by the square. On a CPU: `TOKENS_ON_CPU`, for there more tokens at once
are no faster and memory is rarely the limit.

The number is a part of the run, as the batches are: a run that goes on takes the one it has noted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from translate.data.batching import TOKENS_ON_CPU, Batch
from translate.errors import UserError
from translate.training import provenance
from translate.training.accelerator import on_gpu
from translate.training.disk import MOMENTS, bytes_of
from translate.training.launch import started_together
from translate.training.module import TranslationTask
from translate.training.precision import Precision, autocast_dtype
from translate.training.settings import Settings
from translate.training.trainer import processes
from translate.vocabulary import UNK

log = logging.getLogger(__name__)

MOST = 25_000  # tokens a side and step: what Vaswani et al. 2017 trained with
# tokens, more than the loss takes at once where a vocabulary has over 4,096 pieces (where it has
# fewer, a little less is found to fit than does); the second probe has twice as many
FIRST_PROBE = 8_192
SHARE = 0.85  # of the free memory: the rest is for fragments, and for what Lightning copies
KEY = "tokens_per_batch"


def settled(
    asked: int | Literal["auto"],
    run: Path,
    options: Settings,
    longest: int,
    task: TranslationTask,
    *,
    precision: Precision,
    noted: bool,
) -> int:
    """The tokens of one side of a batch.

    Args:
        asked: `data.tokens_per_batch`.
        longest: tokens that a training sentence may have, as batches are planned.
        task: of the run's model, to be probed; it comes back as it was.
        noted: whether this run, or its first process, has found the number before.

    Raises:
        UserError: not one sentence fits; the number was lost; processes that are started together
            would each find one of their own; or the model is to be dealt out to several GPUs.
    """
    if asked != "auto":
        return asked
    if noted:
        return tokens_noted(run)
    tokens = _found(options, max(1, longest), task, precision)
    log.info("data.%s: %d per side", KEY, tokens)
    provenance.write(run, **{KEY: tokens})
    return tokens


def refuse_started_together(options: Settings) -> None:
    """UserError where every process would find a number of its own."""
    if started_together(options.num_nodes) > 1:
        raise UserError(
            f"data.{KEY} = auto must be determined by one process before the others start, but "
            "here all start at once: train a step on one device first, and give the number it logs"
        )


def _found(options: Settings, longest: int, task: TranslationTask, precision: Precision) -> int:
    refuse_started_together(options)
    most = max(longest, MOST // (options.accumulate * processes(options)))
    if not on_gpu(options.accelerator):
        return max(longest, min(most, TOKENS_ON_CPU))
    if options.strategy == "fsdp":
        raise UserError(
            f"data.{KEY} = auto tries the whole model on one GPU, but trainer.strategy = fsdp "
            f"distributes it over all: give a number, such as data.{KEY}=4096"
        )
    rows = _rows_on_gpu(task, longest, autocast_dtype(precision), averages=options.averages)
    return min(most, longest * rows)


def tokens_noted(run: Path) -> int:
    """The number that a run has found before; UserError where it has noted none."""
    noted = provenance.read(run).get(KEY)
    if not isinstance(noted, int):
        raise UserError(
            f"{run / provenance.FILE} has no {KEY}, which data.{KEY}=auto determined when the run "
            "began: restore the file, or start a new run folder"
        )
    return noted


def rows_that_fit(peak: Callable[[int], int], first: int, room: int) -> int:
    """How many rows need `room` bytes, from what `first` rows need and twice as many.

    Args:
        peak: rows → bytes at the height of a step; may raise OutOfMemoryError.

    Raises:
        torch.OutOfMemoryError: not one row fits.
    """
    while first:
        try:
            small, large = peak(first), peak(2 * first)
            break
        except torch.OutOfMemoryError:
            first //= 2
    else:  # not in the handler above: its error holds on to what filled the memory
        first, small, large = 1, peak(1), sys.maxsize
    each = max(1, (large - small) // first)
    rows = (room - small) // each + first
    if rows < 1:
        raise torch.OutOfMemoryError
    return rows


def _rows_on_gpu(
    task: TranslationTask, width: int, dtype: torch.dtype | None, *, averages: bool
) -> int:
    free, _ = torch.cuda.mem_get_info()
    room = int(SHARE * free) - (MOMENTS + averages) * bytes_of(task)  # which the first step makes

    def peak(rows: int) -> int:
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            found = task.training_losses(
                _longest_sentences(rows, width, guided=task.guidance is not None)
            )
        loss = found.smoothed if found.guided is None else found.smoothed + found.guided
        loss.backward()  # type: ignore[no-untyped-call]
        task.zero_grad()
        return torch.cuda.max_memory_allocated()

    try:
        task.to("cuda")
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
            peak(1)  # libraries take their workspaces at the first call
            return rows_that_fit(peak, max(1, FIRST_PROBE // width), room)
    except torch.OutOfMemoryError:
        raise UserError(
            "the model and its longest training sentences do not fit into the GPU's memory: lower "
            "data.max_length, choose a smaller model, or set trainer.activation_checkpointing=true"
        ) from None
    finally:
        task.zero_grad()
        task.to("cpu")
        torch.cuda.empty_cache()


def _longest_sentences(rows: int, width: int, *, guided: bool) -> Batch:
    """A batch that is full of words on both sides: which words does not matter."""
    words = torch.full((rows, width), UNK, device="cuda")
    widths = torch.full((rows,), width, device="cuda")
    return Batch(
        ids=torch.arange(rows), source=words, source_lengths=widths,
        target_in=words, target_out=words, target_lengths=widths,
        source_tokens=rows * width, target_tokens=rows * width,
        gold=torch.full((rows, width, width), 1 / width, device="cuda") if guided else None,
    )  # fmt: skip
