"""The tokens of a batch that a device's memory holds: `data.tokens_per_batch=auto`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from translate.data.batching import TOKENS_ON_CPU, Batch
from translate.errors import UserError
from translate.training.resources import MOMENTS, autocast_dtype, bytes_of, on_gpu, processes
from translate.training.settings import Precision
from translate.training.step import TranslationTask
from translate.vocabulary import UNK

MOST = 25_000  # tokens a side and step: what Vaswani et al. 2017 trained with
# tokens, more than the loss takes at once of a usual vocabulary; the second probe has twice as many
FIRST_PROBE = 8_192
SHARE = 0.85  # of the free memory: the rest is for fragments, and for what Lightning copies


def tokens_that_fit(task: TranslationTask, *, longest: int, precision: Precision) -> int:
    """Return what `data.tokens_per_batch=auto` is: tokens of one side of a batch.

    On a GPU as many as fit. What a step needs is affine in the rows of a batch of equally long
    sentences, so that two probes tell it; the sentences are as long as the longest of the batches,
    for attention may take memory by the square. On a CPU `TOKENS_ON_CPU`: more are no faster there.

    Args:
        task: of the run's model, to be probed; it comes back as it was.
        longest: tokens that a training sentence may have, as batches are planned.

    Raises:
        UserError: not one sentence fits; or the model is to be sharded over several GPUs.
    """
    config, longest = task.config.trainer, max(1, longest)
    most = max(longest, MOST // (config.accumulate * processes(config)))
    if not on_gpu(config.accelerator):
        return max(longest, min(most, TOKENS_ON_CPU))
    if config.strategy == "fsdp":
        raise UserError(
            "data.tokens_per_batch = auto tries the whole model on one GPU, but trainer.strategy = "
            "fsdp distributes it over all: give a number, such as data.tokens_per_batch=4096"
        )
    free, _ = torch.cuda.mem_get_info()
    # without what the first step makes
    room = int(SHARE * free) - (MOMENTS + config.averages) * bytes_of(task)
    dtype = autocast_dtype(precision)

    def peak(rows: int) -> int:
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            losses = task.training_losses(_longest_sentences(rows, longest, guided=config.guides))
            loss = losses.smoothed if losses.guided is None else losses.smoothed + losses.guided
        loss.backward()  # type: ignore[no-untyped-call]
        task.zero_grad()
        return torch.cuda.max_memory_allocated()

    try:
        task.to("cuda")
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
            peak(1)  # libraries take their workspaces at the first call
            return min(most, longest * rows_that_fit(peak, max(1, FIRST_PROBE // longest), room))
    except torch.OutOfMemoryError:
        raise UserError(
            "the model and its longest training sentences do not fit into the GPU's memory: lower "
            "data.max_length, choose a smaller model, or set trainer.activation_checkpointing=true"
        ) from None
    finally:
        task.zero_grad()
        task.to("cpu")
        torch.cuda.empty_cache()


def rows_that_fit(peak: Callable[[int], int], first: int, room: int) -> int:
    """Return how many rows need `room` bytes, from what `first` rows and twice as many need.

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


def _longest_sentences(rows: int, width: int, *, guided: bool) -> Batch:
    """Make a batch that is full of words on both sides: which words does not matter."""
    words = torch.full((rows, width), UNK, device="cuda")
    widths = torch.full((rows,), width, device="cuda")
    return Batch(
        ids=torch.arange(rows), source=words, source_lengths=widths,
        target_in=words, target_out=words, target_lengths=widths,
        source_tokens=rows * width, target_tokens=rows * width,
        gold=torch.full((rows, width, width), 1 / width, device="cuda") if guided else None,
    )  # fmt: skip
