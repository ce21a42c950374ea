"""What a GPU's memory cannot hold at once is searched in parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from translate.errors import UserError
from translate.inference.segments import Segment

log = logging.getLogger(__name__)

Found = TypeVar("Found")


def by_halves(
    search: Callable[[list[Segment]], list[Found]],
    segments: list[Segment],
    *,
    fits: Callable[[int], None],
) -> list[Found]:
    """What `search` finds for each segment: for all at once, or for halves, quarters, ….

    Args:
        fits: told how many padded tokens to try from then on.

    Raises:
        UserError: not even one of them fits.
    """
    try:
        return search(segments)
    except torch.OutOfMemoryError as error:
        half = len(segments) // 2
        if not half:
            raise UserError(
                f"the GPU ran out of memory searching for one sentence of {len(segments[0].ids)} "
                "pieces: use fewer hypotheses (search.beam_size, search.n_best), a shorter "
                "sentence, or a CPU"
            ) from error
    # here, for the error holds on to what filled the memory
    torch.cuda.empty_cache()
    tokens = half * max(len(segment.ids) + 1 for segment in segments)
    fits(tokens)
    log.warning(
        "the GPU's memory is too small for %d sentences at once: splitting them in half, and "
        "translating later lines in batches of %d tokens (tokens_per_batch)",
        len(segments), tokens,
    )  # fmt: skip
    parts = segments[:half], segments[half:]
    return [found for part in parts for found in by_halves(search, part, fits=fits)]
