"""What a run is about to do, told before it begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from translate.data.module import TranslationData
from translate.training.disk import MOMENTS, bytes_of, readable, room
from translate.training.settings import Settings


def plan(
    run: Path,
    model: nn.Module,
    data: TranslationData,
    options: Settings,
    *,
    steps: int,
    processes: int,
    precision: str,
    resuming: bool,
) -> str:
    """Three lines: the run, its way through the corpus, what memory and disk have to hold.

    Memory is that of weights, gradients and optimizer; activations, which grow with the batch, come
    on top. An epoch's steps are reckoned without the padding, a few per cent.
    """
    source, target = (side * data.weights for side in data.planned)
    a_step = data.tokens_per_batch * options.accumulate * processes
    epoch = max(1.0, float(np.maximum(source, target).sum()) / a_step)
    averaged = options.averaging.kind != "none"
    memory = bytes_of(model) * (2 + MOMENTS + averaged)
    disk = room(model, averaged=averaged, keep=options.keep)
    return (
        f"{'going on with' if resuming else 'training'} {run}: "
        f"{sum(p.numel() for p in model.parameters()):,} parameters, "
        f"{len(data.corpus.train):,} training pairs, {steps} steps of at most {a_step} tokens "
        f"a side, {precision}, {processes} process{'es' if processes > 1 else ''}\n"
        f"an epoch is {source.sum():,.0f} source and {target.sum():,.0f} target tokens, about "
        f"{epoch:,.0f} steps; the run goes through the corpus {steps / epoch:.1f} times\n"
        f"memory {readable(memory)} and activations, in each process; disk {readable(disk)}"
    )
